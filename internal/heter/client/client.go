// Package client connects a trainer to the heter-trainers of its job: each micro-batch goes to one
// of them, within the limits, and returns once. Package internal/heter/service is the other end.
//
//	c, err := client.Dial(ctx, client.Config{Addrs: …, Cut: cut, …})
//	t, err := heter.NewTrainer(model, cut, 4, c, nn.TapeConfig{})
//	pass, err := t.Backward(batch, seed, ready) // of each step
//	err = t.End(rate)
//	err = c.Leave()
//
// # Scheduling
//
// A micro-batch is a part of a batch. A trainer measures each heter-trainer's time per sample, and
// sends a micro-batch to the heter-trainer that will probably finish it first, given the samples
// that this trainer has already sent there. Slow or busy heter-trainers therefore get fewer. If
// heter-trainers own the stage's parameters, micro-batches go round-robin unless another
// heter-trainer would need less than half the time: the choice affects the time of the step, but no
// bit of the gradients' sum.
//
// # Timeouts
//
// Every wait ends after Config.Timeout, and immediately when the last heter-trainer is lost,
// rejects a message or fails. A loss is a *transport.ServerLostError with the heter-trainer's name
// and the step.
//
// # Losses
//
// The remaining heter-trainers get all micro-batches of the step that were sent to a lost one,
// because its gradient sum is lost. The client therefore keeps micro-batches until all remaining
// heter-trainers have committed the step (message.Commit); those of the next step wait.
//
// If the trainer has the stage's parameters (Config.Lent), a lost heter-trainer's micro-batches are
// resent unless their gradient sum has arrived completely, so that each counts once; no other
// trainer is involved, and a replacement gets micro-batches immediately.
//
// A client searches for replacements of lost heter-trainers. A replacement has a new incarnation
// (message.Welcome) and receives the ends of steps. The first commit shows that the replacement has
// the state from other heter-trainers, and micro-batches follow. A heter-trainer lost by other
// trainers before this client connected is lost to this client too.
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

// Config configures a Client. Ticket, Version, Addrs and Cut are required.
type Config struct {
	Ticket            transport.Credentials
	Version           string
	Addrs             []string // HOST:PORT of the heter-trainers, by number
	Trainer, Trainers int
	Cut               *heter.Cut
	// About describes the model for the heter-trainers' service.Config.Open.
	About []byte
	// Code is the encoding of the cut's tensors, both ways; default: fp32.
	Code psmessage.Code
	// Lent reports that the trainer has the stage's parameters, and sends them: the Client is then
	// a heter.StatelessStage. Values and Begin must not be called.
	Lent bool
	// Timeout limits every wait: for heter-trainers that are not yet up, for capacity and results.
	// 0: 15 min.
	Timeout time.Duration
	// Report receives a line about each lost heter-trainer while others remain. It may be nil, and
	// is called by any goroutine.
	Report func(line string)
	// Note receives a line if client and heter-trainer could share memory but do not. nil: Report.
	// Any goroutine calls Note.
	Note func(line string)
}

// Client is a heter.RemoteStage. Only Abort is safe for concurrent use.
type Client struct {
	cfg     Config
	welcome message.Welcome // first heter-trainer's; the lengths are equal for all
	layout  message.Layout
	ctx     context.Context // ends with the client
	stop    context.CancelFunc
	seekers sync.WaitGroup // goroutines that search for replacements

	loads []load
	last  int           // heter-trainer of the last micro-batch
	step  atomic.Uint64 // current step, from 1
	bf16  atomic.Bool   // a micro-batch was in bfloat16

	begun  atomic.Bool   // sendLoop runs
	posted chan struct{} // closed when sendLoop has ended

	mu        sync.Mutex
	changed   sync.Cond
	links     []*link    // last link by heter-trainer
	pending   []*request // micro-batches to send, in order
	news      bool       // the end of the step must be sent
	over      bool       // no more messages will be sent
	times     heter.StageTimes
	requests  map[*heter.MicroBatch]*request
	retained  []*request // requests of the last two steps, perhaps to resend
	orphans   []*request // requests of lost heter-trainers
	frames    frameStore
	ended     message.End
	endedAt   time.Time        // zero: the step is committed
	agreement time.Duration    // recent time from a step's end to its commit
	lastRetry message.RetryEnd // last one received
	values    []float32        // destination of read's ask
	asked     *link            // target of read's ask; nil: none
	joined    int              // number of replacements that have become members
	params    sentParams
	err       error

	freed sync.Once // guards the release of frames
}

// request is a micro-batch in flight or to be sent.
type request struct {
	micro  *heter.MicroBatch
	frame  []byte
	slot   int // slot of frame in shared memory; -1: private memory
	back   int // slot for the results in the heter-trainer's memory; -1: results by link
	n      int // samples
	index  int // in the trainer's step
	eval   bool
	step   uint64
	link   *link // nil until sent
	number uint64
	done   bool // results received
}

// Dial connects to all heter-trainers, and waits for those that are not yet up.
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

// fail ends all waits with the first error.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.changed.Broadcast()
}

// Abort ends the connections and all waits with cause, and sends cause to the heter-trainers. It is
// safe for concurrent use.
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

// lastWord is the time limit for sending the cause of an Abort.
const lastWord = 200 * time.Millisecond

// wait blocks, with c.mu held, until ok returns true or the client fails.
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

// Send implements heter.RemoteStage. It does not block: the owner of the micro-batches' memory
// limits their number.
func (c *Client) Send(m *heter.MicroBatch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.requests[m] != nil {
		return cmp.Or(c.err, errors.New("heter: the micro-batch is under way already"))
	}
	c.bf16.Store(c.bf16.Load() || m.BF16)
	f := &request{micro: m, slot: -1, back: -1, n: m.N, index: m.Index, eval: m.Eval, step: c.step.Load()}
	c.requests[m], c.pending = f, append(c.pending, f)
	c.changed.Broadcast()
	return nil
}

// Wait implements heter.RemoteStage.
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
	if f.eval || len(c.loads) == 1 && !c.cfg.Lent { // no sum to lose, or no replacement
		c.retained = slices.DeleteFunc(c.retained, func(other *request) bool { return other == f })
		c.frames.put(f)
	}
	return nil
}

// End implements heter.RemoteStage.
func (c *Client) End(rate float64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if n := len(c.requests); n > 0 {
		return fmt.Errorf("heter: the end of step %d with %d micro-batches under way", c.step.Load(), n)
	}
	if c.cfg.Lent { // heter-trainers have no steps
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

// Len returns the number of values in the arena of the stage's parameters.
func (c *Client) Len() int { return c.welcome.Values }

// StateLen returns the number of these values and of the optimizer state after them.
func (c *Client) StateLen() int { return c.welcome.State }

// Values reads the stage's state after all ended steps: Len values, the parameters, or StateLen. It
// is called between steps.
func (c *Client) Values(dst []float32) error {
	return c.pieces("read", dst, c.read)
}

// pieces calls do for each piece of x, which is the parameters or the whole state, with the index
// at which the piece begins.
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

// Begin sets the initial values of all heter-trainers, in the layout of Values. A trainer calls
// Begin before all trainers' first step.
func (c *Client) Begin(values []float32) error {
	return c.pieces("begin with", values, c.put)
}

// put writes values to all remaining heter-trainers.
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

// taken records that a heter-trainer has received values of Begin.
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

// read reads values from a remaining heter-trainer.
func (c *Client) read(dst []float32, lo int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.values, c.asked = nil, nil }() // a late answer must not write to dst
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

// Leave ends the connections, once all heter-trainers have committed the last step.
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
	errs := make([]error, len(here)) // first error by heter-trainer
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

// parted returns nil if at least one member has received its goodbye, else all errors. It ignores
// replacements without state.
func parted(members []bool, errs []error) error {
	for i, member := range members {
		if member && errs[i] == nil {
			return nil // a remaining member has the final state
		}
	}
	return errors.Join(errs...)
}

// completed records a returned micro-batch. c.mu is held.
func (c *Client) completed(k *link, f *request) {
	now := time.Now()
	l := &c.loads[k.index]
	if !f.done { // committed: no time
		l.each = smooth(l.each, now.Sub(k.since)/time.Duration(max(1, f.n)))
	}
	l.under -= f.n
	k.since, k.bytes = now, k.bytes-c.sizeOf(f)
	delete(k.inFlight, f.number)
	k.leave(f)
	f.done = true
	c.changed.Broadcast()
}

// wanted reads the answer to an Ask, and ignores it if the caller no longer waits.
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
