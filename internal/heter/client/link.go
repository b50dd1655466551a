package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/frames"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/heter/sharedmem"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// link is the connection to a heter-trainer, with a goroutine for reads and a goroutine for
// heartbeats. sendLoop writes.
type link struct {
	c       *Client
	index   int
	addr    string
	io      *frames.Conn
	welcome message.Welcome
	results []byte          // buffer of the reader
	view    *sharedmem.View // heter-trainer's shared memory, or nil; reader's
	leaving atomic.Bool
	over    chan struct{} // closed when the reader has ended
	once    sync.Once

	// number belongs to sendLoop; c.mu guards the next fields.
	number    uint64
	isLost    bool
	inFlight  map[uint64]*request
	bytes     int
	slots     []int // free slots of view
	committed uint64
	puts      int   // unanswered puts
	asks      []int // value counts of the unanswered asks, in order
	lending   paramState
	since     time.Time // start of the oldest request at the heter-trainer, approximately
}

// reach connects to a heter-trainer, with retries until it is up.
func (c *Client) reach(ctx context.Context, i int, addr string) (*link, error) {
	const shortest, longest = 10 * time.Millisecond, time.Second
	for pause := shortest; ; pause = min(2*pause, longest) {
		k, err := c.try(ctx, i, addr, false)
		if err == nil || isFinal(err) {
			return k, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w; it was tried for %v", err, c.cfg.Timeout)
		}
	}
}

// reachAll connects to each heter-trainer. Heter-trainers lost before are marked as lost, if at
// least one remains.
func (c *Client) reachAll(ctx context.Context) error {
	if n := len(c.cfg.About); n > message.MaxAbout {
		return fmt.Errorf("heter: the description of the heter-trainers' stage has %d bytes, the limit is %d: leave fewer layers to heter-trainers", n, message.MaxAbout)
	}
	var missed error
	for i, addr := range c.cfg.Addrs {
		k, err := c.reach(ctx, i, addr)
		switch {
		case isReplacement(err):
			k, missed = c.lostLink(i, addr), c.cfg.unreached(i, err)
		case err != nil:
			return c.cfg.unreached(i, err)
		case c.welcome.Values == 0:
			c.welcome = k.welcome
		}
		c.links = append(c.links, k)
	}
	if c.alone() {
		return missed
	}
	return nil
}

// Start returns the source of the stage's first values.
func (c *Client) Start() heter.Start { return c.welcome.Start }

// Precisions returns the precisions of the heter-trainers, by number; nil for lost ones.
func (c *Client) Precisions() []*heter.Precision {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*heter.Precision, len(c.links))
	for i, k := range c.links {
		if !k.isLost {
			all[i] = &k.welcome.Precision
		}
	}
	return all
}

// lostLink returns the link of an already lost heter-trainer.
func (c *Client) lostLink(i int, addr string) *link {
	k := &link{c: c, index: i, addr: addr, isLost: true, over: make(chan struct{})}
	close(k.over)
	k.once.Do(func() {}) // has no connection
	c.loads[i].lost = true
	c.report(fmt.Sprintf("heter: trainer %d: heter-trainer %d at %s was lost before this trainer came", c.cfg.Trainer, i, addr))
	return k
}

// isReplacement reports a heter-trainer that replaces a lost one.
func isReplacement(err error) bool {
	r := (*refusal)(nil)
	return errors.As(err, &r) && strings.HasPrefix(r.text, message.ReplacementPrefix)
}

// unreached returns the error for an unreachable heter-trainer. If its stage differs from all
// trainers' stages, the error names it as the cause.
func (c Config) unreached(i int, err error) error {
	if r := (*refusal)(nil); errors.As(err, &r) && strings.HasPrefix(r.text, message.OtherPart) {
		lost := &transport.ServerLostError{Process: fmt.Sprintf("heter-trainer %d", i), Addr: c.Addrs[i], Reason: cluster.Failure(r.text)}
		return fmt.Errorf("heter: trainer %d: %w", c.Trainer, lost)
	}
	return fmt.Errorf("heter: trainer %d: heter-trainer %d at %s: %w", c.Trainer, i, c.Addrs[i], err)
}

// refusal is the last message of a heter-trainer.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// isFinal reports errors that a retry would only repeat.
func isFinal(err error) bool {
	return transport.Permanent(err) || errors.Is(err, message.ErrMalformed) || errors.As(err, new(*refusal))
}

// try connects once. late means that the heter-trainer is a replacement of a lost one.
func (c *Client) try(ctx context.Context, i int, addr string, late bool) (*link, error) {
	cfg := &c.cfg
	l, _, err := transport.Dial(ctx, addr, cfg.Ticket, transport.Hello{Version: cfg.Version, Purpose: transport.Heter, Rank: cfg.Trainer, WorldSize: cfg.Trainers})
	if err != nil {
		return nil, err
	}
	k := &link{c: c, index: i, addr: addr, io: frames.New(l, "heter-trainer", cfg.Timeout), over: make(chan struct{}), inFlight: map[uint64]*request{}}
	stop := context.AfterFunc(ctx, func() { l.Close() }) // making the stage may take long
	hello := message.Hello{Trainer: cfg.Trainer, Trainers: cfg.Trainers, Index: i, Count: len(cfg.Addrs), Code: cfg.Code, Joining: late, Stateless: cfg.Lent, Hash: cfg.Cut.Hash, About: cfg.About}
	if err = k.io.WriteFrame(message.TypeHello, hello.Append(nil)); err == nil {
		err = k.welcomed()
	}
	if err == nil {
		k.share(ctx)
	}
	if !stop() {
		err = context.Cause(ctx)
	}
	if w := c.welcome; err == nil && w.Values > 0 && k.welcome.Start != w.Start {
		err = message.Malformed("first values of another source than those of other heter-trainers: start all with the same heter.device")
	}
	if w := c.welcome; err == nil && w.Values > 0 && (k.welcome.Values != w.Values || k.welcome.State != w.State) {
		err = message.Malformed("a state of %d values, %d with the optimizer's, that of others has %d and %d: give all the same settings", k.welcome.Values, k.welcome.State, w.Values, w.State)
	}
	if w, p := c.welcome.Precision, k.welcome.Precision; err == nil && late && c.bf16.Load() && (!p.BF16 || p.AMX != w.AMX) {
		err = message.Malformed("no products of bfloat16 with the bits of other heter-trainers (AVX512-BF16 and AMX differ): start it on a host with the same processor")
	}
	if err != nil {
		l.Close()
		k.view.Close()
		return nil, err
	}
	k.io.SetSilence(k.welcome.Silence)
	return k, nil
}

func (k *link) welcomed() error {
	f, err := k.io.Header()
	if err != nil {
		return err
	}
	if f.Length > message.MaxText {
		return message.Malformed("a %s of %d bytes in answer to a hello", message.Name(f.Type), f.Length)
	}
	b, err := k.io.ReadAll(f.Length)
	if err != nil {
		return err
	}
	switch f.Type {
	case message.TypeFailure:
		return &refusal{string(b)}
	case message.TypeWelcome:
		k.welcome, err = message.ParseWelcome(b)
		return err
	}
	return message.Malformed("a %s in answer to a hello", message.Name(f.Type))
}

// begin starts reading and heartbeats.
func (k *link) begin() {
	go func() {
		defer close(k.over)
		defer k.view.Close()
		if err := k.read(); !k.leaving.Load() {
			k.c.lose(k, err)
		}
	}()
	go func() {
		beat := time.NewTicker(k.welcome.Heartbeat)
		defer beat.Stop()
		for {
			select {
			case <-beat.C:
			case <-k.over:
				return
			}
			if k.io.WriteFrame(message.TypeHeartbeat, nil) != nil {
				return // the reader reports the cause
			}
		}
	}()
}

func (k *link) end() { k.once.Do(func() { _ = k.io.Link().Close() }) }

func (k *link) lost(err error) error {
	lost := &transport.ServerLostError{Process: fmt.Sprintf("heter-trainer %d", k.index), Addr: k.addr, Reason: err.Error()}
	return fmt.Errorf("heter: trainer %d: step %d: %w", k.c.cfg.Trainer, k.c.step.Load(), lost)
}

func (k *link) read() error {
	for {
		f, err := k.io.Header()
		if err == io.EOF {
			return errors.New("its connection has ended")
		}
		if err != nil {
			return err
		}
		if err := k.payload(f); err != nil {
			return err
		}
	}
}

func (k *link) payload(f wire.Header) error {
	longest := map[wire.Type]int{message.TypeHeartbeat: 0, message.TypeCommit: message.CommitSize, message.TypeAgain: message.MaxAgain, message.TypeFailure: message.MaxText, message.TypeDone: wire.MaxPayload, message.TypeValues: message.AskSize + 4*message.MaxValues, message.TypeTaken: message.AskSize, message.TypeSharedResult: message.HeadSize}
	if most, known := longest[f.Type]; !known || f.Length > most || f != (wire.Header{Type: f.Type, Length: f.Length}) {
		return message.Malformed("a %s frame of %d bytes", message.Name(f.Type), f.Length)
	}
	switch {
	case f.Type == message.TypeDone:
		return k.done(f.Length)
	case f.Type == message.TypeValues && k.c.cfg.Lent:
		return k.summed(f.Length)
	}
	b, err := k.io.ReadAll(f.Length)
	switch {
	case err != nil:
		return err
	case f.Type == message.TypeFailure:
		return &refusal{string(b)}
	case f.Type == message.TypeSharedResult:
		return k.placedDone(b)
	case f.Type == message.TypeValues:
		return k.c.wanted(k, b)
	case f.Type == message.TypeTaken:
		return k.c.taken(k)
	case f.Type == message.TypeCommit:
		step, err := message.ParseCommit(b)
		if err != nil {
			return err
		}
		return k.c.commit(k, uint64(step))
	case f.Type == message.TypeAgain:
		a, err := message.ParseAgain(b)
		if err != nil {
			return err
		}
		k.c.askedAgain(a)
	}
	return nil
}

func (k *link) done(n int) error {
	k.c.mu.Lock()
	most := 0
	for _, f := range k.inFlight {
		most = max(most, k.c.layout.ResultBytes(f.n, f.eval))
	}
	k.c.mu.Unlock()
	if n > most {
		return message.Malformed("results of %d bytes, none under way has more than %d", n, most)
	}
	k.results = bytesview.Sized(k.results, n)
	if err := k.io.Read(k.results); err != nil {
		return err
	}
	return k.came(k.results, false, func(_ message.Head, f *request) error { return k.c.layout.ParseDone(k.results, f.micro) })
}

// came handles results with a head, which parse reads. placed: they are in shared memory.
func (k *link) came(b []byte, placed bool, parse func(message.Head, *request) error) error {
	h, err := message.ParseHead(b)
	if err != nil {
		return err
	}
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	f := k.inFlight[h.Number]
	if f == nil || (f.back >= 0) != placed {
		return message.Malformed("the results of micro-batch %d, which is not under way, or not so", h.Number)
	}
	if !f.done { // otherwise received before the heter-trainer was lost
		if err := parse(h, f); err != nil {
			return err
		}
	}
	k.c.completed(k, f)
	return nil
}
