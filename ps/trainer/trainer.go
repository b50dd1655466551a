// Package trainer is a rank's side of a model whose parameters lie on servers. Before a
// pass it fetches the dense parameters and the rows that the batch names, during backward
// it sends gradients as they become final, and at the end of a step it says so.
//
//	t, err := trainer.New(ctx, trainer.Config{Client: c, Schema: s, Values: params.Values()})
//	for … {
//		mapped, rows, err := t.Fetch(ids, true) // ids of the batch; the model looks up mapped in rows
//		…                                       // forward and backward; distopt gives buckets to t, an exchange.Reducer
//		err = t.PushRows(at, grads)             // at as in mapped
//		err = t.End(rate)
//	}
//	err = t.Leave(ctx)
//
// What a pull sees of other trainers' steps is the servers' consistency.
package trainer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/exchange"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Algorithm is the name of what a Trainer does, in exchange.Sent.
const Algorithm = "push"

// Places of a model's parameters in the schema.
const (
	array = 0 // dense parameters, all in one
	table = 0 // the table
)

// Config says what the parameters are.
type Config struct {
	// Client is connected to the servers. The trainer owns it from New on.
	Client *client.Client
	// Schema has one dense array, and at most one table.
	Schema schema.Schema
	// Values is the arena of dense parameters. Fetch and Settle write to it.
	Values []float32
	// Rows is how many ids the table has.
	Rows int
	// First says that this trainer gives the servers the first values: one of them does.
	First bool
	// Timeout bounds waits for the servers; 0: 15 min.
	Timeout time.Duration
}

// Trainer moves parameters and gradients between a rank and its servers. It is used by
// one goroutine.
type Trainer struct {
	cfg  Config
	lane *client.Lane
	dim  int    // of the table, 0: there is none
	step uint64 // under way, from 1

	seen   compacter
	rows   []float32
	pushed []uint64
	err    error // of a Start, for Wait
}

// New makes a trainer. The first one sends the values that the parameters begin with.
func New(cfg Config) (*Trainer, error) {
	if len(cfg.Schema.Dense) != 1 || len(cfg.Schema.Sparse) > 1 || len(cfg.Values) != cfg.Schema.Dense[0].Len {
		return nil, fmt.Errorf("ps: trainer: %d arrays and %d tables, and %d values: want one array of as many, and at most one table", len(cfg.Schema.Dense), len(cfg.Schema.Sparse), len(cfg.Values))
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 15 * time.Minute
	}
	t := &Trainer{cfg: cfg, lane: cfg.Client.Lane(0), step: 1}
	if len(cfg.Schema.Sparse) == 1 {
		t.dim = cfg.Schema.Sparse[table].Dim
	}
	if cfg.First {
		if err := t.lane.SetDense(array, cfg.Values); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Fetch returns the rows that ids name, each once, and for each id which of them is its own:
// both are good until the next Fetch, Peek or End. The rows are made if they are not there. With dense
// it brings the dense parameters to what they are for the step as well; a step's first
// Fetch does. It waits as the servers' consistency demands.
func (t *Trainer) Fetch(ids []int32, dense bool) (mapped []int32, rows []float32, err error) {
	return t.fetch(ids, dense, t.lane.PullRows)
}

// Peek is Fetch that makes no rows, for evaluation.
func (t *Trainer) Peek(ids []int32) (mapped []int32, rows []float32, err error) {
	return t.fetch(ids, false, t.lane.PeekRows)
}

func (t *Trainer) fetch(ids []int32, dense bool, pull func(int, uint64, []uint64, []float32) (*client.Pull, error)) (mapped []int32, rows []float32, err error) {
	var waits [2]*client.Pull
	if dense {
		if waits[0], err = t.lane.PullDense(array, t.step, 0, t.cfg.Values); err != nil {
			return nil, nil, err
		}
	}
	if t.dim > 0 && len(ids) > 0 {
		if err = t.seen.map32(ids, t.cfg.Rows); err == nil {
			n := len(t.seen.keys) * t.dim
			if cap(t.rows) < n {
				t.rows = make([]float32, n, n+n/4)
			}
			rows, mapped = t.rows[:n], t.seen.mapped
			waits[1], err = pull(table, t.step, t.seen.keys, rows)
		}
	}
	for _, w := range waits {
		if w != nil {
			err = errors.Join(err, w.Wait())
		}
	}
	return mapped, rows, err
}

// PushRows sends gradients of rows of the last Fetch: row i of grads is that of its row at[i],
// each once.
func (t *Trainer) PushRows(at []int32, grads []float32) error {
	t.pushed = t.pushed[:0]
	for _, i := range at {
		t.pushed = append(t.pushed, t.seen.keys[i])
	}
	return t.lane.PushRows(table, t.step, t.pushed, grads)
}

// Start sends a bucket's gradients, see exchange.Reducer. Only whole ones can be sent.
func (t *Trainer) Start(op *exchange.Op) {
	if t.err != nil {
		return
	}
	if op.Sparse != nil || op.Code != nil {
		t.err = fmt.Errorf("ps: trainer: step %d: values at %d are selected or coded: servers of parameters take whole gradients", t.step, op.Lo)
		return
	}
	t.err = t.lane.PushDense(array, t.step, op.Lo, op.X)
	op.Sent = exchange.Sent{Algorithm: Algorithm, Bytes: 4 * int64(len(op.X)), Entries: len(op.X), Dense: true}
}

// Wait returns at once: nothing comes back before the next Fetch.
func (t *Trainer) Wait(*exchange.Op) (time.Time, error) { return time.Now(), t.err }

// Close does nothing: see Leave and End.
func (t *Trainer) Close() error { return nil }

// End ends the step. rate is the learning rate from the next one on.
func (t *Trainer) End(rate float64) error {
	err := t.lane.Clock(t.step, rate)
	t.step++
	return err
}

// Flush waits until the servers have all that was pushed, as safe as they make it. Where all trainers have
// done so, each sees the others' steps.
func (t *Trainer) Flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Timeout)
	defer cancel()
	return t.cfg.Client.Flush(ctx)
}

// Settle brings the dense parameters to what they are after the steps so far.
func (t *Trainer) Settle() error {
	_, _, err := t.fetch(nil, true, nil)
	return err
}

// Each calls do with all rows of the table by number, some at a time: those never touched
// have what they begin with. No rows are made.
func (t *Trainer) Each(do func(rows []float32) error) error {
	const some = 16 << 10
	keys := make([]uint64, 0, some)
	dst := make([]float32, some*max(1, t.dim))
	for at := 0; at < t.cfg.Rows && t.dim > 0; at += some {
		keys = keys[:0]
		for k := at; k < min(at+some, t.cfg.Rows); k++ {
			keys = append(keys, uint64(k))
		}
		rows := dst[:len(keys)*t.dim]
		p, err := t.lane.PeekRows(table, t.step, keys, rows)
		if err == nil {
			err = p.Wait()
		}
		if err == nil {
			err = do(rows)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Leave tells the servers that this trainer is done, waits until they have everything, and
// ends the connections.
func (t *Trainer) Leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Timeout)
	defer cancel()
	return t.cfg.Client.Leave(ctx)
}

// Abandon ends the connections at once: the servers take this trainer for lost.
func (t *Trainer) Abandon() { _ = t.cfg.Client.Close() }
