// Package fake is an engine of plain maps for tests of services and clients, and a
// network in memory whose connections can be cut at any byte. Users may test with it,
// too.
package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/wal"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Config says what an Engine is. The zero value is a server alone with no trainers.
type Config struct {
	Trainers, Sessions int // sessions of each trainer
	Servers, Index     int
	// Stale, if Bounded, is how many steps a trainer may be ahead of the slowest.
	Bounded bool
	Stale   int
	// LostLeaves lets the others go on without a trainer that is lost.
	LostLeaves bool
	// Forgetful lets trainers go on though acknowledged changes are gone.
	Forgetful bool
}

// Engine adds what is pushed to rows and values that begin with zeros. All its methods
// may be called by any number of goroutines.
type Engine struct {
	cfg Config
	sc  schema.Schema

	mu      sync.Mutex
	state   state
	held    bool          // Durable waits
	changed chan struct{} // closed and made anew at changes that others wait for
	failed  chan struct{}
	err     error
	Pushes  []Push // of rows, in the order in which they were applied; nil: not kept
	Keep    bool   // keeps Pushes
	fault   error  // of the next pull or push
	losses  []error
	peeked  atomic.Int64
}

// Push is a push of rows that was applied.
type Push struct {
	Session int
	Seq     uint64
	Table   int
	Step    uint64
	Keys    []uint64
	Grads   []float32
}

type state struct {
	rows    []map[uint64][]float32
	arrays  [][]float32
	last    []uint64 // by session
	clock   []uint64 // by session
	hasLeft []bool   // by session
	rates   []float64
	saves   []uint64 // steps
}

// New returns an engine whose rows and values are all zero.
func New(cfg Config, sc schema.Schema) *Engine {
	cfg.Servers = max(1, cfg.Servers)
	e := &Engine{cfg: cfg, sc: sc, changed: make(chan struct{}), failed: make(chan struct{})}
	n := cfg.Trainers * max(1, cfg.Sessions)
	e.state = state{last: make([]uint64, n), clock: make([]uint64, n), hasLeft: make([]bool, n)}
	for range sc.Sparse {
		e.state.rows = append(e.state.rows, map[uint64][]float32{})
	}
	for _, d := range sc.Dense {
		e.state.arrays = append(e.state.arrays, make([]float32, d.Len))
	}
	return e
}

// Restart returns an engine with the state of e: another process that has recovered
// it.
func (e *Engine) Restart() *Engine {
	e.mu.Lock()
	defer e.mu.Unlock()
	again := New(e.cfg, e.sc)
	s := state{last: slices.Clone(e.state.last), clock: slices.Clone(e.state.clock), hasLeft: slices.Clone(e.state.hasLeft), rates: slices.Clone(e.state.rates), saves: slices.Clone(e.state.saves)}
	for _, t := range e.state.rows {
		m := maps.Clone(t)
		for key, row := range m {
			m[key] = slices.Clone(row)
		}
		s.rows = append(s.rows, m)
	}
	for _, a := range e.state.arrays {
		s.arrays = append(s.arrays, slices.Clone(a))
	}
	again.state, again.Keep = s, e.Keep
	return again
}

// Hold makes Durable wait, or no longer.
func (e *Engine) Hold(held bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held = held
	e.notify()
}

// FailNext makes the next pull, push or checkpoint of the job an error.
func (e *Engine) FailNext(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fault = err
}

// Fail ends the engine.
func (e *Engine) Fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fail(err)
}

// fail needs the lock.
func (e *Engine) fail(err error) {
	if e.err == nil {
		e.err = err
		close(e.failed)
		e.notify()
	}
}

// notify needs the lock.
func (e *Engine) notify() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// Last is the number of the last change of a session.
func (e *Engine) Last(session int) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state.last[session]
}

// Rates are those that clocks have set, in order.
func (e *Engine) Rates() []float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.state.rates)
}

// Losses are the causes given to Lost.
func (e *Engine) Losses() []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.losses)
}

// Row is a row, nil where there is none.
func (e *Engine) Row(table int, key uint64) []float32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.state.rows[table][key])
}

// Rows is how many rows a table has.
func (e *Engine) Rows(table int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.state.rows[table])
}

// Array is a dense array; of other servers' ranges it has zeros.
func (e *Engine) Array(array int) []float32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.state.arrays[array])
}

// Join returns the last change of a session. It is an error where acknowledged ones are
// gone.
func (e *Engine) Join(session int, from, clock uint64) (uint64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return 0, e.err
	}
	if last := &e.state.last[session]; *last+1 < from {
		if !e.cfg.Forgetful {
			return 0, fmt.Errorf("session %d: changes %d to %d were acknowledged and are gone", session, *last+1, from-1)
		}
		*last, e.state.clock[session] = from-1, clock
	}
	return e.state.last[session], nil
}

// errGap: changes are missing.
var errGap = errors.New("a gap in the changes")

// change applies a change that is the session's next.
func (e *Engine) change(session int, seq uint64, apply func() error) (wal.LSN, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return wal.LSN{}, e.err
	}
	last := &e.state.last[session]
	if seq > *last+1 {
		return wal.LSN{}, fmt.Errorf("%w of session %d: %d after %d", errGap, session, seq, *last)
	}
	if seq <= *last {
		return wal.LSN{Number: seq}, nil
	}
	if err := e.fault; err != nil {
		e.fault = nil
		return wal.LSN{}, err
	}
	if err := apply(); err != nil {
		return wal.LSN{}, err
	}
	*last = seq
	return wal.LSN{Number: seq}, nil
}

// SetDense sets values, within this server's range.
func (e *Engine) SetDense(session int, seq uint64, array, lo int, values []float32) (wal.LSN, error) {
	return e.change(session, seq, func() error {
		if err := e.within(array, lo, len(values)); err != nil {
			return err
		}
		copy(e.state.arrays[array][lo:], values)
		return nil
	})
}

// PushRows adds gradients to rows; counts behind them are only kept. A key that another server owns, and one that is there twice,
// is an error.
func (e *Engine) PushRows(session int, seq uint64, table int, step uint64, keys []uint64, grads []float32) (wal.LSN, error) {
	return e.change(session, seq, func() error {
		width, seen := e.sc.Sparse[table].Dim+e.sc.Sparse[table].Counts(), map[uint64]bool{}
		for _, key := range keys {
			if seen[key] {
				return fmt.Errorf("key %d is twice in the batch", key)
			}
			if owner := schema.Owner(key, e.cfg.Servers); owner != e.cfg.Index {
				return fmt.Errorf("key %d is server %d's", key, owner)
			}
			seen[key] = true
		}
		for i, key := range keys {
			row := e.row(table, key)
			for j := range row {
				row[j] += grads[i*width+j]
			}
		}
		if e.Keep {
			e.Pushes = append(e.Pushes, Push{session, seq, table, step, slices.Clone(keys), slices.Clone(grads)})
		}
		return nil
	})
}

func (e *Engine) row(table int, key uint64) []float32 {
	t := e.state.rows[table]
	if t[key] == nil {
		t[key] = make([]float32, e.sc.Sparse[table].Dim)
	}
	return t[key]
}

// PushDense adds to values, within this server's range.
func (e *Engine) PushDense(session int, seq uint64, array int, step uint64, lo int, values []float32) (wal.LSN, error) {
	return e.change(session, seq, func() error {
		if err := e.within(array, lo, len(values)); err != nil {
			return err
		}
		for i, v := range values {
			e.state.arrays[array][lo+i] += v
		}
		return nil
	})
}

func (e *Engine) within(array, lo, n int) error {
	from, to := schema.Cut(e.sc.Dense[array].Len, e.cfg.Servers, e.cfg.Index)
	if lo < from || lo+n > to {
		return fmt.Errorf("%d values at %d of array %d, this server has %d to %d", n, lo, array, from, to)
	}
	return nil
}

// Clock ends a step of a session.
func (e *Engine) Clock(session int, seq uint64, step uint64, rate float64) (wal.LSN, error) {
	return e.change(session, seq, func() error {
		e.state.clock[session] = step
		e.state.rates = append(e.state.rates, rate)
		e.notify()
		return nil
	})
}

// Leave ends a session.
func (e *Engine) Leave(session int, seq uint64) (wal.LSN, error) {
	return e.change(session, seq, func() error {
		e.state.hasLeft[session] = true
		e.notify()
		return nil
	})
}

// Durable waits while durability is held.
func (e *Engine) Durable(wal.LSN) error {
	for {
		e.mu.Lock()
		held, changed, err := e.held, e.changed, e.err
		e.mu.Unlock()
		if err != nil || !held {
			return err
		}
		<-changed
	}
}

// SaveStep notes the step, once; its number is how many there were before it, and 1. The fault of FailNext is for it, too.
func (e *Engine) SaveStep(_ context.Context, step, _ uint64) (uint64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.fault; err != nil {
		e.fault = nil
		return 0, err
	}
	i := slices.Index(e.state.saves, step)
	if i < 0 {
		i = len(e.state.saves)
		e.state.saves = append(e.state.saves, step)
	}
	return uint64(i) + 1, e.err
}

// Saves are the steps of SaveStep.
func (e *Engine) Saves() []uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.state.saves)
}

// Await waits until nobody is too far behind for a pull of a step.
func (e *Engine) Await(ctx context.Context, _ int, step uint64) error {
	for {
		e.mu.Lock()
		ready, changed, err := e.ready(step), e.changed, e.err
		e.mu.Unlock()
		if err != nil || ready {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (e *Engine) ready(step uint64) bool {
	if !e.cfg.Bounded {
		return true
	}
	for session, clock := range e.state.clock {
		if !e.state.hasLeft[session] && clock+1+uint64(e.cfg.Stale) < step {
			return false
		}
	}
	return true
}

// WaitsFor is a trainer with a session that is too far behind.
func (e *Engine) WaitsFor(step uint64) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	for session, clock := range e.state.clock {
		if e.cfg.Bounded && !e.state.hasLeft[session] && clock+1+uint64(e.cfg.Stale) < step {
			return session / (len(e.state.clock) / max(1, e.cfg.Trainers))
		}
	}
	return -1
}

// PullRows copies rows; where there is none, zeros.
func (e *Engine) PullRows(_ rows.PullID, table int, keys []uint64, dst []float32) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.fault; err != nil {
		e.fault = nil
		return err
	}
	dim := e.sc.Sparse[table].Dim
	for i, key := range keys {
		to := dst[i*dim:][:dim]
		if row := e.state.rows[table][key]; row != nil {
			copy(to, row)
		} else {
			clear(to)
		}
	}
	return nil
}

// PeekRows is PullRows, and counts.
func (e *Engine) PeekRows(table int, keys []uint64, dst []float32) error {
	e.peeked.Add(int64(len(keys)))
	return e.PullRows(rows.PullID{}, table, keys, dst)
}

// Peeked is how many rows PeekRows was asked for.
func (e *Engine) Peeked() int { return int(e.peeked.Load()) }

// Clocked is the least step that a session has clocked.
func (e *Engine) Clocked() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Min(e.state.clock) // without sessions nobody pulls
}

// Prefetch does nothing: all is in memory.
func (e *Engine) Prefetch(context.Context, int, []uint64) {}

// PullDense copies values, within this server's range.
func (e *Engine) PullDense(array, lo int, dst []float32) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.within(array, lo, len(dst)); err != nil {
		return err
	}
	copy(dst, e.state.arrays[array][lo:])
	return nil
}

// Lost ends the engine, or lets the trainer's sessions leave.
func (e *Engine) Lost(trainer int, cause error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	cause = fmt.Errorf("trainer %d is lost: %w", trainer, cause)
	e.losses = append(e.losses, cause)
	if !e.cfg.LostLeaves {
		e.fail(cause)
		return nil
	}
	sessions := len(e.state.hasLeft) / e.cfg.Trainers
	for l := range sessions {
		e.state.hasLeft[trainer*sessions+l] = true
	}
	e.notify()
	return nil
}

// Failed is closed when the engine has ended.
func (e *Engine) Failed() <-chan struct{} { return e.failed }

// Err is why.
func (e *Engine) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}
