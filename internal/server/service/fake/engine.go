// Package fake is an engine of plain maps for tests of services and clients, and a network in
// memory with connections that can be cut at any byte.
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

// Config configures an Engine. The zero value is a single server without trainers.
type Config struct {
	Trainers, Sessions int // sessions per trainer
	Servers, Index     int
	// Bounded limits a trainer's lead over the slowest trainer to Stale steps.
	Bounded bool
	Stale   int
	// LostLeaves makes a lost trainer count as left.
	LostLeaves bool
	// Forgetful allows trainers to continue after the loss of acknowledged changes.
	Forgetful bool
}

// Engine adds pushed values to zeros. All methods are safe for concurrent use.
type Engine struct {
	cfg Config
	sc  schema.Schema

	mu      sync.Mutex
	state   state
	held    bool          // Durable blocks
	changed chan struct{} // closed and replaced at each change
	failed  chan struct{}
	err     error
	Pushes  []Push // applied pushes of rows, in order, if Keep
	Keep    bool   // enables Pushes
	fault   error  // error of the next pull or push
	losses  []error
	peeked  atomic.Int64
}

// Push is an applied push of rows.
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
	last    []uint64 // indexed by session
	clock   []uint64 // indexed by session
	hasLeft []bool   // indexed by session
	rates   []float64
	saves   []uint64 // steps
}

// New returns an engine with all values zero.
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

// Restart returns an engine with the state of e, like a restarted server.
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

// Hold sets whether Durable blocks.
func (e *Engine) Hold(held bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held = held
	e.notify()
}

// FailNext sets the error of the next pull, push or checkpoint of the job.
func (e *Engine) FailNext(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fault = err
}

// Fail stops the engine.
func (e *Engine) Fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fail(err)
}

// fail requires the lock.
func (e *Engine) fail(err error) {
	if e.err == nil {
		e.err = err
		close(e.failed)
		e.notify()
	}
}

// notify requires the lock.
func (e *Engine) notify() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// Last returns the number of a session's last change.
func (e *Engine) Last(session int) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state.last[session]
}

// Rates returns the learning rates of all clocks, in order.
func (e *Engine) Rates() []float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.state.rates)
}

// Losses returns the causes passed to Lost.
func (e *Engine) Losses() []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.losses)
}

// Row returns a row, nil if missing.
func (e *Engine) Row(table int, key uint64) []float32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.state.rows[table][key])
}

// Rows returns the number of rows of a table.
func (e *Engine) Rows(table int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.state.rows[table])
}

// Array returns a dense array, with zeros outside this server's range.
func (e *Engine) Array(array int) []float32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.state.arrays[array])
}

// Join returns the last change of a session, and an error if acknowledged ones are missing.
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

var errGap = errors.New("a gap in the changes")

// change applies a change if it is the session's next one.
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

// PushRows adds gradients to rows and ignores counts. Duplicate and foreign keys are errors.
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

// Durable blocks while durability is held.
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

// SaveStep records a new step; the result is the step's position in Saves, from 1. See FailNext.
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

// Saves returns the steps of SaveStep.
func (e *Engine) Saves() []uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.state.saves)
}

// Await blocks while a session is too slow for a pull of a step.
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

// WaitsFor returns a trainer with a session that is too slow.
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

// PullRows copies rows, zeros for missing ones.
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

// PeekRows is PullRows with a count for Peeked.
func (e *Engine) PeekRows(table int, keys []uint64, dst []float32) error {
	e.peeked.Add(int64(len(keys)))
	return e.PullRows(rows.PullID{}, table, keys, dst)
}

// Peeked returns the number of rows requested from PeekRows.
func (e *Engine) Peeked() int { return int(e.peeked.Load()) }

// Clocked returns the lowest clock of all sessions.
func (e *Engine) Clocked() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Min(e.state.clock) // without sessions there are no pulls
}

// Prefetch has no effect, because all rows are in memory.
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

// Lost stops the engine, or ends the trainer's sessions.
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

// Failed returns a channel closed when the engine stops.
func (e *Engine) Failed() <-chan struct{} { return e.failed }

// Err returns the error that stopped the engine.
func (e *Engine) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}
