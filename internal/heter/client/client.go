// Package client is a trainer's connections to the heter-trainers of its job: micro-batches go to
// whichever will be done first, as many at a time as these allow, and each comes back once. Package
// internal/heter/service is the other end.
//
//	c, err := client.Dial(ctx, client.Config{Addrs: …, Cut: cut, …})
//	t, err := heter.NewTrainer(model, cut, 4, c, nn.TapeConfig{})
//	pass, err := t.Backward(batch, seed, ready) // of each step
//	err = t.End(rate)
//	err = c.Leave()
//
// # Who gets the next one
//
// A trainer measures how long each heter-trainer takes for a sample, from when it could begin to when its results are here, and
// gives a micro-batch to whom it expects to be done with it first, given what this trainer has under way there. One that is slow, or
// that others keep busy, so gets less. Which one it is depends on the time: the order in which gradients are added up does, too, and
// with several heter-trainers, or several trainers, two runs may differ in last bits.
//
// # Waiting
//
// Every wait ends by Config.Timeout, and at once when the last heter-trainer is lost, refuses something or fails. A lost one is a
// *transport.ServerLostError that names it, with the step.
//
// # Losses
//
// While others are left they get what a lost heter-trainer had of the step: what it had computed, too, for its sum is lost. Until all that
// are left have committed a step (message.Commit) its micro-batches are kept as they were sent, and those of the next step wait.
//
// Where the trainer lends the part's parameters a lost one's micro-batches are sent again unless the sum of their gradients has come whole,
// so that each counts once; nobody waits for others, and one that is found gets micro-batches at once.
//
// A client goes on looking for those that it has lost. One that is found has another life (message.Welcome) than the one before it, and is told
// of the ends of steps from then on; when it has committed one, others have given it their state, and it gets micro-batches. One that others have
// lost before a client came is lost to this one, too.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/message"
	psmessage "github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/transport"
)

// Config says whom a trainer connects to. Ticket, Version, Addrs and Cut are needed.
type Config struct {
	Ticket            transport.Credentials
	Version           string
	Addrs             []string // of the heter-trainers, by number, HOST:PORT
	Trainer, Trainers int
	Cut               *heter.Cut
	// About says what the model is built for, in words that heter-trainers understand: service.Config.Open gets it.
	About []byte
	// Code is how what crosses travels, there and back: fp32, where nothing is said.
	Code psmessage.Code
	// Lent says that the trainer has the part's parameters, and lends them: the Client is a
	// heter.StatelessStage, and heter-trainers keep nothing. Values and Begin are not for it.
	Lent bool
	// Timeout bounds every wait: for heter-trainers that are not up yet, for room and for results. 0: 15 min.
	Timeout time.Duration
	// Report gets a line about each heter-trainer that is lost while others are left. It may be nil; any goroutine may call it.
	Report func(line string)
	// Note gets a line where no memory is shared that could be. It may be nil: Report does; any goroutine may call it.
	Note func(line string)
}

// Client is a heter.RemoteStage. One goroutine uses it, but for Abort; another one, its own, sends.
type Client struct {
	cfg     Config
	welcome message.Welcome // of the first one that was reached; that of others has the same lengths
	layout  message.Layout
	ctx     context.Context // ends with the client
	stop    context.CancelFunc
	seekers sync.WaitGroup // those who look for lost ones

	loads []load
	last  int           // the heter-trainer that got the last micro-batch
	step  atomic.Uint64 // under way, from 1

	begun  atomic.Bool   // it sends
	posted chan struct{} // closed when that has ended

	mu        sync.Mutex
	changed   sync.Cond
	links     []*link    // by heter-trainer; of one that is lost: the last
	pending   []*request // to be sent, in turn
	news      bool       // the end of the step is to be said for the first time
	over      bool       // nothing is to be sent any more
	times     heter.StageTimes
	requests  map[*heter.MicroBatch]*request
	retained  []*request // of the last two steps, as long as they may have to be sent again
	orphans   []*request // whose heter-trainers are lost
	frames    frameStore
	ended     message.End
	lastRetry message.RetryEnd // the last one that came
	values    []float32        // wanted by read, from the last ask on
	asked     *link            // of whom; nil: nothing is wanted
	joined    int              // how often a lost one has become a member again
	params    sentParams
	err       error

	freed sync.Once // the memory of frames
}

// request is a micro-batch that was sent, or is about to be.
type request struct {
	micro  *heter.MicroBatch
	frame  []byte
	slot   int // of shared memory that frame lies in; -1: it is memory of this process
	back   int // of its heter-trainer's memory, where results are wanted; -1: they come by the link
	n      int // samples
	eval   bool
	step   uint64
	link   *link // nil: it was not sent yet
	number uint64
	done   bool // its results are here
}

// Dial connects to all heter-trainers, and waits for those that are not up yet.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	if len(cfg.Addrs) == 0 || cfg.Cut == nil || cfg.Trainers < 1 || cfg.Trainer < 0 || cfg.Trainer >= cfg.Trainers {
		return nil, fmt.Errorf("heter: trainer %d of %d, %d heter-trainers: want one at least, and a cut", cfg.Trainer, cfg.Trainers, len(cfg.Addrs))
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, 15*time.Minute)
	c := &Client{cfg: cfg, loads: make([]load, len(cfg.Addrs)), last: cfg.Trainer % len(cfg.Addrs), requests: map[*heter.MicroBatch]*request{}, posted: make(chan struct{})}
	c.changed.L, c.layout = &c.mu, message.Layout{Cut: cfg.Cut, Code: cfg.Code}
	c.step.Store(1)
	c.ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	if err := c.reachAll(ctx); err != nil {
		c.Abort(err)
		return nil, err
	}
	c.mu.Lock()
	for _, k := range c.links {
		if k.isLost {
			c.seekers.Go(func() { c.reconnectLoop(k.index, k.addr) })
		} else {
			k.begin()
		}
	}
	c.mu.Unlock()
	c.begun.Store(true)
	go c.sendLoop()
	return c, nil
}

// fail ends all waits with the first reason that is given.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.changed.Broadcast()
}

// Abort ends the connections, and all waits with cause, of which heter-trainers are told if they listen. Any goroutine may call it.
func (c *Client) Abort(cause error) {
	cause = cmp.Or(cause, errors.New("the trainer has ended"))
	c.fail(cause)
	c.stop()
	c.mu.Lock()
	links, over := slices.Clone(c.links), c.over
	here := slices.DeleteFunc(slices.Clone(links), func(k *link) bool { return over || k.isLost })
	c.mu.Unlock()
	var told sync.WaitGroup
	for _, k := range here {
		k.leaving.Store(true)
		told.Go(func() {
			defer time.AfterFunc(lastWord, k.end).Stop()
			text := []byte(cause.Error())
			_ = k.io.WriteFrame(message.TypeFailure, text[:min(len(text), message.MaxText)])
		})
	}
	told.Wait()
	for _, k := range links {
		k.end()
	}
	c.free(links)
}

// lastWord is how long a heter-trainer may take to hear why a trainer ends.
const lastWord = 200 * time.Millisecond

// wait waits, with c.mu held, until ok is true or something has failed.
func (c *Client) wait(what string, ok func() bool) error {
	late := false
	timer := time.AfterFunc(c.cfg.Timeout, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		late = true
		c.changed.Broadcast()
	})
	defer timer.Stop()
	for {
		switch {
		case c.err != nil:
			return c.err
		case ok():
			return nil
		case late:
			return fmt.Errorf("heter: trainer %d: step %d: %s: nothing for %v: %w", c.cfg.Trainer, c.step.Load(), what, c.cfg.Timeout, transport.ErrTimeout)
		}
		c.changed.Wait()
	}
}

// Send is heter.RemoteStage's. It does not wait: how much is under way is bounded by who has the
// memory of micro-batches.
func (c *Client) Send(m *heter.MicroBatch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if c.requests[m] != nil {
		return errors.New("heter: the micro-batch is under way already")
	}
	f := &request{micro: m, slot: -1, back: -1, n: m.N, eval: m.Eval, step: c.step.Load()}
	c.requests[m], c.pending = f, append(c.pending, f)
	c.changed.Broadcast()
	return nil
}

// Wait is heter.RemoteStage's.
func (c *Client) Wait(m *heter.MicroBatch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.requests[m]
	if f == nil {
		return errors.New("heter: the micro-batch was not sent")
	}
	err := c.wait("the results of a micro-batch", func() bool { return f.done })
	if err != nil {
		return err
	}
	delete(c.requests, m)
	if f.eval || len(c.loads) == 1 && !c.cfg.Lent { // it is in no sum that may be lost, or there is nobody else
		c.retained = slices.DeleteFunc(c.retained, func(other *request) bool { return other == f })
		c.frames.put(f)
	}
	return nil
}

// End is heter.RemoteStage's.
func (c *Client) End(rate float64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if n := len(c.requests); n > 0 {
		return fmt.Errorf("heter: the end of step %d with %d micro-batches under way", c.step.Load(), n)
	}
	if c.cfg.Lent { // heter-trainers know of no steps
		c.step.Add(1)
		return nil
	}
	c.ended = message.End{Step: c.step.Load(), Rate: rate, Attempt: 1, Members: c.incarnations()}
	if c.lastRetry.Step == c.ended.Step {
		c.ended.Attempt = max(1, c.lastRetry.Attempt)
	}
	c.step.Add(1)
	c.news = true
	c.changed.Broadcast()
	return nil
}

// Len is how many values the part's parameters have in their arena.
func (c *Client) Len() int { return c.welcome.Values }

// StateLen is how many values there are of these and of what the part's optimizer keeps, which come behind them.
func (c *Client) StateLen() int { return c.welcome.State }

// Values reads the part's state as it is after all steps that have ended: Len values, the parameters, or StateLen. It is called between steps.
func (c *Client) Values(dst []float32) error {
	return c.pieces("read", dst, c.read)
}

// pieces calls do with the parameters, or the whole state, a piece at a time, and where each begins.
func (c *Client) pieces(what string, x []float32, do func(piece []float32, lo int) error) error {
	if n := len(x); n != c.Len() && n != c.StateLen() {
		return fmt.Errorf("heter: %d values of the part to %s: it has %d, and %d with those of its optimizer", n, what, c.Len(), c.StateLen())
	}
	for lo := 0; lo < len(x); lo += message.MaxValues {
		if err := do(x[lo:min(lo+message.MaxValues, len(x))], lo); err != nil {
			return err
		}
	}
	return nil
}

// Begin makes values, as Values reads them, those that all heter-trainers begin with. One trainer calls it before its first step, and no
// other one may be at its first step before that has returned.
func (c *Client) Begin(values []float32) error {
	return c.pieces("begin with", values, c.put)
}

// put writes some values on all that are left.
func (c *Client) put(values []float32, lo int) error {
	b := append(message.Ask{Step: 1, Lo: lo, Count: len(values)}.Append(nil), bytesview.Bytes(values)...)
	c.mu.Lock()
	defer c.mu.Unlock()
	members := slices.DeleteFunc(slices.Clone(c.links), func(k *link) bool { return c.loads[k.index].lost })
	for _, k := range members {
		k.puts++
		c.mu.Unlock()
		if err := k.io.WriteFrame(message.TypePut, b); err != nil {
			c.lose(k, err)
		}
		c.mu.Lock()
	}
	return c.wait("that values were taken", func() bool {
		return !slices.ContainsFunc(members, func(k *link) bool { return k.puts > 0 && !k.isLost })
	})
}

// taken notes that a heter-trainer has values of Begin.
func (c *Client) taken(k *link) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.puts == 0 {
		return message.Malformed("values are taken that were not given")
	}
	k.puts--
	c.changed.Broadcast()
	return nil
}

// read reads some values from one that is left.
func (c *Client) read(dst []float32, lo int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.values, c.asked = nil, nil }() // an answer that comes too late is not for dst
	for c.values = dst; c.values != nil; {
		if err := c.wait("the end of the step", func() bool { return c.committed(c.ended.Step) }); err != nil {
			return err
		}
		i := slices.IndexFunc(c.loads, func(l load) bool { return !l.lost })
		k, a := c.links[i], message.Ask{Step: c.step.Load(), Lo: lo, Count: len(dst)}
		c.asked = k
		k.asks = append(k.asks, a.Count)
		c.mu.Unlock()
		if err := k.io.WriteFrame(message.TypeAsk, a.Append(nil)); err != nil {
			c.lose(k, err)
		}
		c.mu.Lock()
		if err := c.wait("the part's parameters", func() bool { return c.values == nil || k.isLost }); err != nil {
			return err
		}
	}
	return nil
}

// Leave says goodbye to all heter-trainers, once they have committed the last step, and ends the connections.
func (c *Client) Leave() error {
	c.mu.Lock()
	err := c.wait("the end of the last step", func() bool { return c.committed(c.ended.Step) })
	c.over = true
	c.changed.Broadcast()
	here := slices.DeleteFunc(slices.Clone(c.links), func(k *link) bool { return k.isLost })
	members := make([]bool, len(here))
	for i, k := range here {
		members[i] = !c.loads[k.index].lost
	}
	c.mu.Unlock()
	c.stop()
	c.seekers.Wait()
	if err != nil {
		return err
	}
	<-c.posted
	errs := make([]error, len(here)) // of each the first
	for i, k := range here {
		k.leaving.Store(true)
		if err := k.io.WriteFrame(message.TypeGoodbye, nil); err != nil {
			errs[i] = k.lost(err)
		}
	}
	for i, k := range here {
		err := k.io.Link().CloseWrite(c.cfg.Timeout, io.EOF)
		select {
		case <-k.over:
		case <-time.After(c.cfg.Timeout):
			err = transport.ErrTimeout
		}
		if k.end(); err != nil && errs[i] == nil {
			errs[i] = k.lost(err)
		}
	}
	c.free(here)
	return parted(members, errs)
}

// parted is what was wrong with the goodbyes, of each heter-trainer one error or none: nothing, if a member has heard it. One that came late and
// has no state yet counts for nothing.
func parted(members []bool, errs []error) error {
	for i, member := range members {
		if member && errs[i] == nil {
			return nil // the part is what one that is left says it is
		}
	}
	return errors.Join(errs...)
}

// completed notes that a micro-batch has come back. c.mu is held.
func (c *Client) completed(k *link, f *request) {
	now := time.Now()
	l := &c.loads[k.index]
	if each := now.Sub(k.since) / time.Duration(max(1, f.n)); !f.done { // what a heter-trainer had committed takes it no time
		if l.each == 0 {
			l.each = each
		}
		l.each += (each - l.each) / 4
	}
	l.under -= f.n
	k.since, k.bytes = now, k.bytes-c.sizeOf(f)
	delete(k.inFlight, f.number)
	k.leave(f)
	f.done = true
	c.changed.Broadcast()
}

// wanted reads the answer to an ask. One to an ask whose caller has given up is of no use any more.
func (c *Client) wanted(k *link, b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch n := len(b) - message.AskSize; {
	case len(k.asks) == 0:
		return message.Malformed("%d bytes of values, none are wanted", n)
	case n != 4*k.asks[0]:
		return message.Malformed("%d bytes of values, %d are wanted", n, 4*k.asks[0])
	}
	if k.asks = k.asks[1:]; c.asked != k || len(k.asks) > 0 {
		return nil
	}
	copy(bytesview.Bytes(c.values), b[message.AskSize:])
	c.values, c.asked = nil, nil
	c.changed.Broadcast()
	return nil
}
