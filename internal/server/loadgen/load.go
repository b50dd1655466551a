// Package loadgen pulls rows from parameter servers and pushes gradients at full speed, as trainers
// do, measures the time, and verifies the rows bit by bit.
//
//	l, err := loadgen.Dial(ctx, loadgen.Config{Servers: addresses, …})
//	err = l.Fill(ctx, nil)
//	stream, err := l.Stream(ctx, loadgen.Work{Op: loadgen.Pull, Batch: 4096}, 2*time.Second)
//	single, err := l.Single(ctx, loadgen.Work{Op: loadgen.Pull, Batch: 4096}, 2*time.Second)
//	checked, err := l.Check(ctx)
//	err = l.Leave(ctx)
//
// Key maps ranks to keys. The gradient for a key depends on its index in the batch, and an oracle
// applies the same gradients to about a thousand of the keys. With several clients the server
// chooses the order of their pushes: all gradients are then equal, so that the order has no effect.
package loadgen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

// Config describes the load. The zero value is not valid: Servers, Ticket, Version, Table and Keys
// are required.
type Config struct {
	Servers []string
	Ticket  transport.Ticket
	Version string        // program version
	Table   schema.Sparse // the only table
	Keys    uint64        // number of ranks with rows after Fill
	// Clients is the number of concurrent trainers, each with a connection; 0: 1. The servers must
	// expect as many trainers, apply pushes on arrival (async) and have no rows yet.
	Clients int
	Seed    uint64 // seed of all random numbers
}

// Op is the operation on each batch.
type Op string

// The operations.
const (
	Pull Op = "pull"
	Push Op = "push"
	Both Op = "both" // a pull and a push of the same keys, as in a training step
)

// Work describes a measurement. Batch is required.
type Work struct {
	Op    Op
	Dist  Dist
	Batch int // distinct keys
	// Insert is the share of a batch, below 1, of keys never requested before.
	Insert float64
	// InFlight is the number of a client's pulls in flight in Stream; 0: 3.
	InFlight int
}

// Result is the result of a measurement.
type Result struct {
	Rows, Batches          int64   // sum over clients; Both counts a row once
	Seconds                float64 // until the last answer and acknowledgement
	SentBytes, ReadBytes   int64   // on all connections, frames included; exact for a single server
	Inserted               int64   // new keys
	MicrosecondsEachSorted []float64
}

// Load is a group of clients.
type Load struct {
	cfg     Config
	clients []*trainer
	oracle  *oracle
	fresh   atomic.Uint64 // first unused rank
}

// watched is the number of keys in the oracle, and watchedTop the number from the first ranks.
const (
	watched    = 1024
	watchedTop = 64
)

const fillBatch = 8192

// Validate returns all errors together.
func (c Config) Validate() error {
	bad := faults.In("load: ")
	bad.If(len(c.Servers) == 0, "no server")
	const most = 1 << 40
	bad.If(c.Keys < 1 || c.Keys > most, "%d keys: want 1 to %d", c.Keys, most)
	const mostClients = 1024
	bad.If(c.Clients < 0 || c.Clients > mostClients, "%d clients: want 1 to %d, or 0 for 1", c.Clients, mostClients)
	sc := schema.Schema{Sparse: []schema.Sparse{c.Table}}
	bad.Add(sc.Validate())
	return bad.Err()
}

// Validate returns all errors of w, for tables with the given number of keys, as one error.
func (w Work) Validate(keys uint64) error {
	bad := faults.In("load: ")
	bad.If(w.Op != Pull && w.Op != Push && w.Op != Both, "operation %q: want pull, push or both", w.Op)
	// With fewer keys, the last key of a batch would be redrawn many times.
	const each, most = 8, 1 << 20
	bad.If(w.Batch < 1 || w.Batch > most || uint64(w.Batch) > max(1, keys/each),
		"batches of %d of %d keys: want 1 to %d, and an eighth of the keys at most", w.Batch, keys, most)
	bad.If(!(w.Insert >= 0 && w.Insert < 1), "a share of %s of new keys: want 0 to below 1", quantity.Exact(w.Insert))
	const mostAhead = 64
	bad.If(w.InFlight < 0 || w.InFlight > mostAhead,
		"%d pulls under way: want 1 to %d, or 0 for 3", w.InFlight, mostAhead)
	bad.If(!(w.Dist.Skew >= 0 && w.Dist.Skew <= maxSkew),
		"a skew of %s: want 0 to %d", quantity.Exact(w.Dist.Skew), maxSkew)
	const rare = 0.004 // minimum probability to draw the last missing key of a batch
	bad.If(bad.Empty() && w.Dist.beyond(float64(w.Batch), float64(keys)) < rare,
		"batches of %d different keys of %d by %v: others than the first %d are hardly ever drawn; make batches smaller", w.Batch, keys, w.Dist, w.Batch)
	return bad.Err()
}

// Dial connects the clients.
func Dial(ctx context.Context, cfg Config) (*Load, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Clients = cmp.Or(cfg.Clients, 1)
	l := &Load{cfg: cfg}
	var err error
	if l.oracle, err = newOracle(cfg.Table); err != nil {
		return nil, err
	}
	r := rand.New(rand.NewPCG(cfg.Seed, 1))
	for i := uint64(0); i < min(watched, cfg.Keys); i = uint64(len(l.oracle.keys)) {
		rank := i
		if i >= watchedTop && cfg.Keys > 2*watched {
			rank = r.Uint64N(cfg.Keys)
		}
		l.oracle.watch(rank)
	}
	l.fresh.Store(cfg.Keys)
	for i := range cfg.Clients {
		t, err := l.dial(ctx, i)
		if err != nil {
			l.Close()
			return nil, err
		}
		l.clients = append(l.clients, t)
	}
	return l, nil
}

func (l *Load) dial(ctx context.Context, i int) (*trainer, error) {
	c, err := client.Dial(ctx, client.Config{
		Servers: l.cfg.Servers, Ticket: l.cfg.Ticket, Version: l.cfg.Version,
		Trainer: i, Trainers: l.cfg.Clients, Schema: schema.Schema{Sparse: []schema.Sparse{l.cfg.Table}},
		Reconnect: 10 * time.Second, Timeout: 5 * time.Minute,
	})
	if err != nil {
		return nil, err
	}
	return &trainer{l: l, c: c, session: c.Session(0), dim: l.cfg.Table.Dim, width: l.cfg.Table.Dim + l.cfg.Table.Counts(), random: rand.New(rand.NewPCG(l.cfg.Seed, uint64(i)+2))}, nil
}

// Leave reports the clients' end to the servers, and closes them.
func (l *Load) Leave(ctx context.Context) error {
	errs := make([]error, len(l.clients))
	var all sync.WaitGroup
	for i, t := range l.clients {
		all.Go(func() { errs[i] = t.c.Leave(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Close ends the clients immediately.
func (l *Load) Close() {
	for _, t := range l.clients {
		_ = t.c.Close() // always nil
	}
}

// Keys returns the number of ranks with rows.
func (l *Load) Keys() uint64 { return l.fresh.Load() }

// Fill creates the rows of all keys, with state, by a push to each. pause, unless nil, is called
// after every 64th of the rows, once acknowledged.
func (l *Load) Fill(ctx context.Context, pause func(rows uint64) error) (Result, error) {
	l.reserve(fillBatch)
	const parts = 64 // number of pauses
	step := (l.cfg.Keys/parts/fillBatch + 1) * fillBatch
	var total Result
	for lo := uint64(0); lo < l.cfg.Keys; lo += step {
		hi := min(l.cfg.Keys, lo+step)
		var next atomic.Uint64
		next.Store(lo)
		r, err := l.each(ctx, func(t *trainer) error { return t.fill(&next, hi) })
		total.add(r)
		if err != nil {
			return total, err
		}
		if pause != nil {
			if err := pause(hi); err != nil {
				return total, err
			}
		}
	}
	for slot, rank := range l.oracle.ranks {
		l.oracle.push(int32(slot), l.clients[0].grad(int(rank%fillBatch)))
	}
	return total, nil
}

func (r *Result) add(o Result) {
	r.Rows += o.Rows
	r.Batches += o.Batches
	r.Seconds += o.Seconds
	r.SentBytes += o.SentBytes
	r.ReadBytes += o.ReadBytes
	r.Inserted += o.Inserted
}

// Stream runs work for a time, with several batches in flight per client.
func (l *Load) Stream(ctx context.Context, w Work, d time.Duration) (Result, error) {
	w.InFlight = cmp.Or(w.InFlight, 3)
	return l.measure(ctx, w, d, func(t *trainer) error { return t.stream(w, time.Now().Add(d)) })
}

// Single runs work for a time, with one batch at a time per client: a batch starts after the rows,
// or the acknowledgement, of the previous batch. Each batch is timed.
func (l *Load) Single(ctx context.Context, w Work, d time.Duration) (Result, error) {
	w.InFlight = 1
	return l.measure(ctx, w, d, func(t *trainer) error { return t.single(ctx, w, time.Now().Add(d)) })
}

func (l *Load) measure(ctx context.Context, w Work, d time.Duration, do func(t *trainer) error) (Result, error) {
	if err := w.Validate(l.cfg.Keys); err != nil {
		return Result{}, err
	}
	l.reserve(w.Batch)
	var drawn sync.WaitGroup
	errs := make([]error, len(l.clients))
	for i, t := range l.clients {
		drawn.Go(func() { errs[i] = t.prepare(l.cfg.Keys, w, w.Dist.poolKeys(d)/len(l.clients)) })
	}
	drawn.Wait()
	if err := errors.Join(errs...); err != nil {
		return Result{}, err
	}
	before := l.fresh.Load()
	r, err := l.each(ctx, do)
	if err != nil {
		return r, err
	}
	r.Inserted = int64(l.fresh.Load() - before)
	for _, t := range l.clients {
		r.MicrosecondsEachSorted = append(r.MicrosecondsEachSorted, t.us...)
		t.update(l.oracle)
	}
	slices.Sort(r.MicrosecondsEachSorted)
	return r, nil
}

// each runs do for all clients concurrently, and counts the results. If ctx ends, l is closed.
func (l *Load) each(ctx context.Context, do func(t *trainer) error) (Result, error) {
	stop := context.AfterFunc(ctx, l.Close)
	defer stop()
	var r Result
	sent, read := l.traffic()
	errs := make([]error, len(l.clients))
	var all sync.WaitGroup
	start := time.Now()
	for i, t := range l.clients {
		t.rows, t.count = 0, 0
		all.Go(func() {
			if errs[i] = do(t); errs[i] == nil {
				errs[i] = t.c.Flush(ctx)
			}
		})
	}
	all.Wait()
	r.Seconds = time.Since(start).Seconds()
	for i, t := range l.clients {
		r.Rows += t.rows
		r.Batches += t.count
		if errs[i] == nil {
			errs[i] = t.settle()
		}
	}
	r.SentBytes, r.ReadBytes = l.traffic()
	r.SentBytes, r.ReadBytes = r.SentBytes-sent, r.ReadBytes-read
	if err := context.Cause(ctx); err != nil {
		return r, err
	}
	return r, errors.Join(errs...)
}

func (l *Load) traffic() (sent, read int64) {
	for _, t := range l.clients {
		s := t.c.Stats()
		sent += s.BytesSent
		read += s.BytesReceived
	}
	return sent, read
}

// reserve makes the clients' gradients long enough for batches of a size. Longer gradients begin
// with the values of shorter gradients.
func (l *Load) reserve(batch int) {
	dim, width := l.cfg.Table.Dim, l.clients[0].width
	need := batch * width
	first := l.clients[0]
	if len(first.grads) < need {
		r := rand.New(rand.NewPCG(l.cfg.Seed, 0))
		grads := make([]float32, need)
		for i := range grads {
			switch at := i % width; {
			case at == dim:
				grads[i] = 1 // one show
			case at > dim:
				grads[i] = 0 // no click
			case len(l.clients) > 1 && i >= width:
				grads[i] = grads[i-width]
			default:
				grads[i] = r.Float32() - 0.5
			}
		}
		for _, t := range l.clients {
			t.grads = grads
		}
	}
}

// ErrWrong is the error of wrong rows.
var ErrWrong = errors.New("load: rows are wrong")

// Check compares about a thousand rows with the oracle, to the last bit, including frequent and new
// rows. Check returns the number of rows, or ErrWrong for a difference.
func (l *Load) Check(ctx context.Context) (rows int, err error) {
	stop := context.AfterFunc(ctx, l.Close)
	defer stop()
	o, t := l.oracle, l.clients[0]
	dst := make([]float32, len(o.keys)*o.dim)
	p, err := t.session.PullRows(0, step, o.keys, dst)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		return 0, cmp.Or(context.Cause(ctx), err)
	}
	if wrong, first := o.compare(dst); wrong > 0 {
		return len(o.keys), fmt.Errorf("%w: %d of %d; the first: %s", ErrWrong, wrong, len(o.keys), first)
	}
	return len(o.keys), nil
}
