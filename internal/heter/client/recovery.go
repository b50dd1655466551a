package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/heter/message"
)

// lose marks a heter-trainer as lost, and moves its micro-batches of the step to other
// heter-trainers: see recoverLost. The loss of the last one ends the client.
func (c *Client) lose(k *link, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.isLost || c.err != nil {
		return
	}
	k.isLost = true
	defer c.changed.Broadcast()
	l := &c.loads[k.index]
	member := !l.lost
	*l = load{lost: true}
	end := k.lost(why)
	if errors.As(why, new(*refusal)) {
		end = why // the heter-trainer's own message
	}
	switch {
	case !c.alone():
	case !slices.ContainsFunc(c.links, func(k *link) bool { return !k.isLost }):
		c.err = end
		return
	default: // a replacement may already have the state, and report it soon
		joined := c.joined
		time.AfterFunc(k.welcome.Silence, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.alone() && c.joined == joined && c.err == nil { // unchanged since the loss
				c.err = end
				c.changed.Broadcast()
			}
		})
	}
	c.forget()
	moved := 0
	for _, f := range c.retained {
		if f.link == k && !(f.done && f.eval) {
			c.orphans = append(c.orphans, f)
			moved++
		}
	}
	k.bytes = 0
	clear(k.inFlight)
	if member {
		c.report(fmt.Sprintf("%v; %d of this trainer's micro-batches go to others, which have their own copies of the part", k.lost(why), moved))
	}
	k.end()
	if !c.over {
		c.seekers.Go(func() { c.reconnectLoop(k.index, k.addr) })
	}
}

// alone reports that no heter-trainer is known to have the stage's state. c.mu is held.
func (c *Client) alone() bool {
	return !slices.ContainsFunc(c.loads, func(l load) bool { return !l.lost })
}

func (c *Client) report(line string) {
	if c.cfg.Report != nil {
		c.cfg.Report(line)
	}
}

// oneTry is the time limit for reaching a replacement: it may not yet listen, or may have to make
// the stage.
const oneTry = time.Minute

// reconnectLoop searches for a replacement of a lost heter-trainer until the client ends. It
// reports each distinct refusal once, up to a limit.
func (c *Client) reconnectLoop(i int, addr string) {
	const shortest, longest = 10 * time.Millisecond, time.Second
	const most = 16
	said := map[string]bool{}
	for pause := shortest; c.ctx.Err() == nil; pause = min(2*pause, longest) {
		ctx, cancel := context.WithTimeout(c.ctx, oneTry)
		k, err := c.try(ctx, i, addr, true)
		cancel()
		if err == nil {
			c.onRejoin(k)
			return
		}
		if isFinal(err) && len(said) < most && !said[err.Error()] {
			said[err.Error()] = true
			c.report(fmt.Sprintf("heter-trainer %d at %s is not taken back: %v", i, addr, err))
		}
		select {
		case <-time.After(pause):
		case <-c.ctx.Done():
		}
	}
}

// onRejoin adds a replacement, which then receives the ends of steps.
func (c *Client) onRejoin(k *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.err != nil {
		k.end()
		close(k.over)
		k.view.Close()
		return
	}
	c.links[k.index] = k
	if k.begin(); c.cfg.Lent { // stateless: ready immediately
		c.loads[k.index] = load{}
		c.joined++
		c.report(fmt.Sprintf("heter-trainer %d at %s is there again, and takes part from step %d on", k.index, k.addr, c.step.Load()))
		c.changed.Broadcast()
	}
}

// incarnations returns the connected incarnations, 0 for lost ones. c.mu is held.
func (c *Client) incarnations() (lives []uint64) {
	for _, k := range c.links {
		life := k.welcome.Incarnation
		if k.isLost {
			life = 0
		}
		lives = append(lives, life)
	}
	return lives
}

// committed reports whether all remaining heter-trainers (not 0) have ended a step. c.mu is held.
func (c *Client) committed(step uint64) bool {
	for i, k := range c.links {
		if !c.loads[i].lost && k.committed < step {
			return false
		}
	}
	return !c.alone()
}

// forget frees the memory of micro-batches of committed steps. c.mu is held.
func (c *Client) forget() {
	if !c.committed(c.ended.Step) {
		return
	}
	over := func(f *request) bool { return f.done && f.step <= c.ended.Step }
	c.orphans = slices.DeleteFunc(c.orphans, over)
	c.retained = slices.DeleteFunc(c.retained, func(f *request) bool {
		if over(f) {
			c.frames.put(f)
		}
		return over(f)
	})
}

// commit records that a heter-trainer has ended a step.
func (c *Client) commit(k *link, step uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case k.isLost:
		return nil
	case step > c.ended.Step || step < k.committed:
		return message.Malformed("a commit of step %d after %d, the trainer has ended %d", step, k.committed, c.ended.Step)
	}
	if k.committed = step; c.loads[k.index].lost { // a replacement with the state
		c.loads[k.index] = load{}
		c.joined++
		c.report(fmt.Sprintf("heter-trainer %d at %s is there again: it has the others' parameters as of step %d", k.index, k.addr, step))
	}
	if c.committed(c.ended.Step) && !c.endedAt.IsZero() {
		c.agreement, c.endedAt = smooth(c.agreement, time.Since(c.endedAt)), time.Time{}
	}
	c.forget()
	c.changed.Broadcast()
	return nil
}

// askedAgain records a request to repeat the end of a step.
func (c *Client) askedAgain(a message.RetryEnd) {
	c.mu.Lock()
	gone := slices.DeleteFunc(slices.Clone(c.links), func(k *link) bool { return !slices.Contains(a.Lost, k.welcome.Incarnation) })
	c.mu.Unlock()
	for _, k := range gone {
		c.lose(k, errors.New("another trainer has lost it"))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.Step > c.lastRetry.Step || a.Step == c.lastRetry.Step && a.Attempt > c.lastRetry.Attempt {
		c.lastRetry = a
	}
	c.changed.Broadcast()
}

// needsRecovery reports pending recovery. c.mu is held.
func (c *Client) needsRecovery() bool {
	return len(c.orphans) > 0 || c.retryDue()
}

// retryDue reports whether the end of the last step must be sent again. c.mu is held.
func (c *Client) retryDue() bool {
	e := c.ended
	if e.Step == 0 || c.committed(e.Step) {
		return false
	}
	return c.membersLost(e) || c.lastRetry.Step == e.Step && c.lastRetry.Attempt > e.Attempt
}

// membersLost reports whether members at the end of a step were lost since. c.mu is held.
func (c *Client) membersLost(e message.End) bool {
	for i, life := range c.incarnations() {
		if e.Members[i] != 0 && e.Members[i] != life {
			return true
		}
	}
	return false
}

// recoverLost resends lost heter-trainers' micro-batches to others, and repeats the end of the step
// if it was sent. c.mu is held, and released during writes.
func (c *Client) recoverLost() {
	due := c.retryDue()
	if due {
		c.news = false
		c.ended.Attempt++
		if c.lastRetry.Step == c.ended.Step {
			c.ended.Attempt = max(c.ended.Attempt, c.lastRetry.Attempt)
		}
		c.ended.Members, c.ended.Open = c.incarnations(), true
		c.sayEnd()
	}
	for len(c.orphans) > 0 && c.err == nil {
		at := c.choosePeer(c.orphans[0])
		if at < 0 {
			c.changed.Wait()
			continue
		}
		f := c.orphans[0]
		c.orphans = c.orphans[1:]
		c.send(f, at)
	}
	if due && c.err == nil && len(c.orphans) == 0 && !c.membersLost(c.ended) { // else due again, or obsolete
		c.ended.Open = false
		c.sayEnd()
	}
}

// sayEnd sends the end of the step to all heter-trainers that are members of the step. c.mu is
// held, and released during writes.
func (c *Client) sayEnd() {
	e := c.ended
	c.endedAt = time.Now()
	for i, k := range slices.Clone(c.links) {
		if k.isLost || e.Members[i] != k.welcome.Incarnation {
			continue
		}
		e.Count = k.number
		c.mu.Unlock()
		if err := k.io.WriteFrame(message.TypeEnd, e.Append(nil)); err != nil {
			c.lose(k, err)
		}
		c.mu.Lock()
	}
}
