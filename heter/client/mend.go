package client

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/heter/message"
)

// lose notes that a heter-trainer is lost. What it had of the step goes to others, if there are some: see mend. The last one's loss is the
// client's end.
func (c *Client) lose(k *link, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loads[k.index].lost || c.err != nil {
		return
	}
	c.loads[k.index].lost = true
	defer c.changed.Broadcast()
	if c.lost = append(c.lost, k.index); len(c.lost) == len(c.links) {
		if c.err = k.lost(why); errors.As(why, new(*refusal)) { // it has said itself what is wrong
			c.err = why
		}
		return
	}
	slices.Sort(c.lost)
	c.forget()
	moved := 0
	for _, f := range c.kept {
		if f.link == k && !(f.done && f.eval) {
			c.orphans = append(c.orphans, f)
			moved++
		}
	}
	c.loads[k.index].under, k.bytes = 0, 0
	clear(k.under)
	if c.cfg.Report != nil {
		c.cfg.Report(fmt.Sprintf("%v; %d of this trainer's micro-batches go to others, which have their own copies of the part", k.lost(why), moved))
	}
	k.end()
}

// committed says that all heter-trainers that are left have ended a step. c.mu is held.
func (c *Client) committed(step uint64) bool {
	for i, k := range c.links {
		if !c.loads[i].lost && k.committed < step {
			return false
		}
	}
	return true
}

// forget takes back the memory of micro-batches that nobody may want again: those of steps that are committed. c.mu is held.
func (c *Client) forget() {
	if !c.committed(c.ended.Step) {
		return
	}
	over := func(f *flight) bool { return f.done && f.step <= c.ended.Step }
	c.orphans = slices.DeleteFunc(c.orphans, over)
	c.kept = slices.DeleteFunc(c.kept, func(f *flight) bool {
		if over(f) {
			c.spare = append(c.spare, f.frame)
		}
		return over(f)
	})
}

// commit notes that a heter-trainer has ended a step.
func (c *Client) commit(k *link, step uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if step > c.ended.Step || step < k.committed {
		return message.Malformed("a commit of step %d after %d, the trainer has ended %d", step, k.committed, c.ended.Step)
	}
	k.committed = step
	c.forget()
	c.changed.Broadcast()
	return nil
}

// askedAgain notes that a heter-trainer wants the end of a step again.
func (c *Client) askedAgain(a message.Again) error {
	if n := len(a.Lost); n > 0 && a.Lost[n-1] >= len(c.links) {
		return message.Malformed("heter-trainer %d is said to be lost, of %d", a.Lost[n-1], len(c.links))
	}
	for _, i := range a.Lost {
		k := c.links[i]
		c.lose(k, errors.New("another trainer has lost it"))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.Step > c.again.Step || a.Step == c.again.Step && a.Attempt > c.again.Attempt {
		c.again = a
	}
	c.changed.Broadcast()
	return nil
}

// torn says that there is something to mend. c.mu is held.
func (c *Client) torn() bool {
	return len(c.orphans) > 0 || c.due()
}

// due says that the end of the last step is to be said again. c.mu is held.
func (c *Client) due() bool {
	e := c.ended
	if e.Step == 0 || c.committed(e.Step) {
		return false
	}
	return len(c.lost) > len(e.Lost) || c.again.Step == e.Step && c.again.Attempt > e.Attempt
}

// mend gives others what lost ones had, and says the end of the step again where it had been said. c.mu is held, and let go meanwhile.
func (c *Client) mend() {
	due := c.due()
	if due {
		c.news = false
		c.ended.Attempt++
		if c.again.Step == c.ended.Step {
			c.ended.Attempt = max(c.ended.Attempt, c.again.Attempt)
		}
		c.ended.Lost, c.ended.Open = slices.Clone(c.lost), true
		c.sayEnd()
	}
	for len(c.orphans) > 0 && c.err == nil {
		at := c.pick(c.orphans[0])
		if at < 0 {
			c.changed.Wait()
			continue
		}
		f := c.orphans[0]
		c.orphans = c.orphans[1:]
		c.give(f, at)
	}
	if due && c.err == nil && len(c.orphans) == 0 && len(c.lost) == len(c.ended.Lost) { // else it is due again, or never
		c.ended.Open = false
		c.sayEnd()
	}
}

// sayEnd tells all that are left of the end of the step. c.mu is held, and let go meanwhile.
func (c *Client) sayEnd() {
	e := c.ended
	c.mu.Unlock()
	defer c.mu.Lock()
	for i, k := range c.links {
		c.mu.Lock()
		gone := c.loads[i].lost
		c.mu.Unlock()
		if gone {
			continue
		}
		e.Count = k.number
		if err := k.io.WriteFrame(message.TypeEnd, e.Append(nil)); err != nil {
			c.lose(k, err)
		}
	}
}
