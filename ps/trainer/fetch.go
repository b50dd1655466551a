package trainer

import (
	"errors"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/ps/client"
)

// batch is what a step needs of the servers.
type batch struct {
	seen   compacter // its rows; copies have their own
	mapped []int32   // for each id, its row
	rows   []float32
	asked  bool // ahead
	ids    int  // how many were asked for
}

// pending is what is under way: never more than a step's.
type pending struct{ values, rows *client.Pull }

// Fetch returns rows, among which are those that ids name, each once, and for each id which of
// them is its own: both are good until the next Fetch, Peek or End, or, with copies, until they are
// exchanged. The rows are made if they are not there. It brings the dense parameters to what they are for the step as
// well. It waits as the servers' consistency demands. Where Ask has asked for the step, ids must be
// the same.
func (t *Trainer) Fetch(ids []int32) (mapped []int32, rows []float32, err error) {
	b, err := t.turnTo(ids, t.ask)
	if err == nil && t.pending.values == nil && (t.geo == nil || t.geo.stale) {
		err = t.askDense()
	}
	if err = errors.Join(err, t.await()); err != nil {
		return nil, nil, err
	}
	if t.geo != nil {
		return b.mapped, t.geo.weights, nil
	}
	return b.mapped, b.rows, nil
}

// Ask asks for the rows that Fetch will return in the step after this one, and does not wait. It is called
// between Fetch and End, where the next batch is known; where copies are exchanged at the end of this
// step it does nothing, because rows are pulled anew after it.
func (t *Trainer) Ask(ids []int32) error {
	if t.exchanges() {
		return nil
	}
	b := &t.batches[t.turn^1]
	b.asked, b.ids = true, len(ids)
	return t.ask(b, t.step+1, ids)
}

// Peek returns rows as Fetch does, without dense parameters and without making rows: for
// evaluation, of what the servers have.
func (t *Trainer) Peek(ids []int32) (mapped []int32, rows []float32, err error) {
	b, err := t.turnTo(ids, t.peek)
	if err = errors.Join(err, t.await()); err != nil {
		return nil, nil, err
	}
	return b.mapped, b.rows, nil
}

// AskPeek asks for the rows that the next Peek will return, and does not wait.
func (t *Trainer) AskPeek(ids []int32) error {
	b := &t.batches[t.turn^1]
	b.asked, b.ids = true, len(ids)
	return t.peek(b, t.step, ids)
}

// turnTo makes the next batch the one in use, and asks for it unless that was done ahead.
func (t *Trainer) turnTo(ids []int32, ask func(*batch, uint64, []int32) error) (*batch, error) {
	t.turn ^= 1
	b := &t.batches[t.turn]
	asked := b.asked
	b.asked = false
	switch {
	case !asked:
		return b, ask(b, t.step, ids)
	case b.ids != len(ids):
		return b, fmt.Errorf("ps: trainer: step %d: %d ids, %d were asked for", t.step, len(ids), b.ids)
	}
	return b, nil
}

// ask asks for the rows of a step.
func (t *Trainer) ask(b *batch, step uint64, ids []int32) error {
	if t.geo != nil {
		return t.askCopies(b, step, ids)
	}
	return t.askRows(b, step, ids, t.session.PullRows)
}

func (t *Trainer) peek(b *batch, step uint64, ids []int32) error {
	return t.askRows(b, step, ids, t.session.PeekRows)
}

// askDense asks for the dense values of the step that begins.
func (t *Trainer) askDense() (err error) {
	t.pending.values, err = t.session.PullDense(array, t.step, 0, t.cfg.Values)
	return err
}

func (t *Trainer) askRows(b *batch, step uint64, ids []int32, pull func(int, uint64, []uint64, []float32) (*client.Pull, error)) (err error) {
	b.seen.begin()
	if b.mapped, b.rows = b.mapped[:0], b.rows[:0]; t.dim == 0 || len(ids) == 0 {
		return nil
	}
	if b.mapped, err = b.seen.add(ids, t.cfg.Rows, b.mapped); err != nil {
		return err
	}
	b.rows = grown(b.rows[:0], len(b.seen.keys)*t.dim)
	t.pending.rows, err = pull(table, step, b.seen.keys, b.rows)
	return err
}

// askCopies asks for the rows of which there are no copies.
func (t *Trainer) askCopies(b *batch, step uint64, ids []int32) (err error) {
	if b.mapped = b.mapped[:0]; t.dim == 0 || len(ids) == 0 {
		return nil
	}
	g := t.geo
	if b.mapped, err = g.seen.add(ids, t.cfg.Rows, b.mapped); err != nil {
		return err
	}
	keys, weights := g.extend()
	if len(keys) > 0 {
		t.pending.rows, err = t.session.PullRows(table, step, keys, weights)
	}
	return err
}

// await waits for all that is under way.
func (t *Trainer) await() error {
	err := t.awaitValues()
	p := t.pending.rows
	if p == nil {
		return err
	}
	t.pending.rows = nil
	err = errors.Join(err, t.wait(p))
	if err == nil && t.geo != nil {
		err = t.geo.begin()
	}
	return err
}

// awaitValues waits for the dense values, if they are under way.
func (t *Trainer) awaitValues() error {
	p := t.pending.values
	if p == nil {
		return nil
	}
	t.pending.values = nil
	err := t.wait(p)
	if err == nil && t.geo != nil {
		t.geo.take(t.cfg.Values)
	}
	return err
}

func (t *Trainer) wait(p *client.Pull) error {
	start := time.Now()
	err := p.Wait()
	t.waited += time.Since(start)
	return err
}

// grown is x with n values more, of which nothing is known.
func grown(x []float32, n int) []float32 {
	if need := len(x) + n; cap(x) < need {
		x = append(make([]float32, 0, need+need/4), x...)
	}
	return x[:len(x)+n]
}
