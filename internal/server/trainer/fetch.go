package trainer

import (
	"errors"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/ps/client"
)

// batch is what a step needs of the servers.
type batch struct {
	of     Batch         // without ids and keys, in memory of its own
	parts  []part        // by group
	rows   [][]float32   // by table; copies have their own
	asked  bool          // ahead
	ids    int           // how many ids and keys were asked for
	copies bool          // its rows are copies
	misses []cacheMisses // by table: what no cache has of it
}

// part is what a batch names of the rows of a group.
type part struct {
	unique  keyIndex // the rows; copies have their own
	inverse []int32  // for each id or key, its row
}

// pending is what is under way: never more than a step's.
type pending struct {
	values *client.Pull
	rows   []pulled
}

// pulled are rows under way.
type pulled struct {
	pull *client.Pull
	to   *cacheMisses // that take them; nil: they come to their places
}

// pulling is a way to ask for rows.
type pulling func(table int, step uint64, keys []uint64, dst []float32) (*client.Pull, error)

// Fetch brings the rows that a batch names, for Rows. They are made if they are not there. It brings the dense parameters to what they
// are for the step as well. It waits as the servers' consistency demands. Where Ask has asked for the step, the batch must be the same.
func (t *Trainer) Fetch(of Batch) error {
	err := t.turnTo(of, t.ask)
	if err == nil && t.pending.values == nil && (t.geo == nil || t.geo.stale) {
		err = t.askDense()
	}
	return errors.Join(err, t.await())
}

// Rows are those of a table that the last Fetch or Peek has brought, among which are those that the batch names, each once; at has for each
// id, or for each key that the table is looked up by, its row: of other keys it means nothing. Both are good until the next Fetch, Peek or
// End, or, with copies, until they are exchanged.
func (t *Trainer) Rows(table int) (at []int32, rows []float32) {
	b := &t.batches[t.turn]
	if rows = b.rows[table]; b.copies {
		rows = t.geo.tables[table].weights
	}
	return b.parts[t.tables[table].group].inverse, rows
}

// Ask asks for the rows that Fetch will bring in the step after this one, and does not wait. It is called
// between Fetch and End, where the next batch is known; where copies are exchanged at the end of this
// step it does nothing, because rows are pulled anew after it.
func (t *Trainer) Ask(of Batch) error {
	if t.exchanges() {
		return nil
	}
	return t.askAhead(of, t.step+1, t.ask)
}

// Peek brings rows as Fetch does, without dense parameters and without making rows: for
// evaluation, of what the servers have.
func (t *Trainer) Peek(of Batch) error {
	err := t.turnTo(of, t.peek)
	return errors.Join(err, t.await())
}

// AskPeek asks for the rows that the next Peek will bring, and does not wait.
func (t *Trainer) AskPeek(of Batch) error { return t.askAhead(of, t.step, t.peek) }

func (t *Trainer) askAhead(of Batch, step uint64, ask func(*batch, uint64, Batch) error) error {
	b := &t.batches[t.turn^1]
	b.asked, b.ids = true, len(of.IDs)+len(of.Keys)
	return ask(b, step, of)
}

// turnTo makes the next batch the one in use, and asks for it unless that was done ahead.
func (t *Trainer) turnTo(of Batch, ask func(*batch, uint64, Batch) error) error {
	t.turn ^= 1
	b, n := &t.batches[t.turn], len(of.IDs)+len(of.Keys)
	asked := b.asked
	b.asked = false
	switch {
	case !asked:
		return ask(b, t.step, of)
	case b.ids != n:
		return fmt.Errorf("ps: trainer: step %d: %d ids and keys, %d were asked for", t.step, n, b.ids)
	}
	return nil
}

// ask asks for the rows of a step.
func (t *Trainer) ask(b *batch, step uint64, of Batch) error {
	if t.geo != nil {
		return t.askCopies(b, step, of)
	}
	return t.askRows(b, step, of, training)
}

func (t *Trainer) peek(b *batch, step uint64, of Batch) error {
	return t.askRows(b, step, of, evaluating)
}

// askDense asks for the dense values of the step that begins.
func (t *Trainer) askDense() (err error) {
	t.pending.values, err = t.session.PullDense(array, t.step, 0, t.cfg.Values)
	return err
}

// take keeps what is needed of a batch behind the call: where its bags are, by which rows are counted when their gradients are pushed. What
// the bags have is in the parts by then.
func (b *batch) take(of Batch, copies bool) {
	b.of.N, b.of.Offsets, b.copies = of.N, append(b.of.Offsets[:0], of.Offsets...), copies
}

func (t *Trainer) askRows(b *batch, step uint64, of Batch, to purpose) (err error) {
	b.take(of, false)
	t.pass.turnTo(to)
	pull := t.session.PullRows
	if to == evaluating {
		pull = t.session.PeekRows
	}
	for i := range t.groups {
		g, p := &t.groups[i], &b.parts[i]
		p.unique.begin()
		if p.inverse, err = g.add(&p.unique, &of, p.inverse); err != nil {
			return t.lookupFault(g, err)
		}
		for _, table := range g.tables {
			b.rows[table] = grown(b.rows[table][:0], len(p.unique.keys)*t.tables[table].dim)
			if err := t.pull(table, step, p.unique.keys, b.rows[table], pull, &b.misses[table]); err != nil {
				return err
			}
		}
	}
	return nil
}

// askCopies asks for the rows of which there are no copies.
func (t *Trainer) askCopies(b *batch, step uint64, of Batch) (err error) {
	b.take(of, true)
	for i := range t.groups {
		g, p, own := &t.groups[i], &b.parts[i], &t.geo.groups[i]
		if p.inverse, err = g.add(&own.unique, &of, p.inverse); err != nil {
			return t.lookupFault(g, err)
		}
		keys := own.unique.keys[own.begun:]
		for _, table := range g.tables {
			weights := t.geo.tables[table].extend(own.begun, len(keys))
			if err := t.pull(table, step, keys, weights, t.session.PullRows, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Trainer) lookupFault(g *group, err error) error {
	return fmt.Errorf("ps: trainer: step %d: table %q: %w", t.step, t.cfg.Schema.Sparse[g.tables[0]].Name, err)
}

// pull asks for rows of a table, if there are any, but for those that its cache has; of others l is told.
func (t *Trainer) pull(table int, step uint64, keys []uint64, dst []float32, pull pulling, l *cacheMisses) error {
	if l != nil {
		if l = t.lookup(l, table, step, keys, dst); l != nil {
			keys, dst = l.keys, l.rows
		}
	}
	if len(keys) == 0 {
		return nil
	}
	p, err := pull(table, step, keys, dst)
	if err == nil {
		t.pending.rows = append(t.pending.rows, pulled{p, l})
	}
	return err
}

// await waits for all that is under way.
func (t *Trainer) await() error {
	err := t.awaitValues()
	if len(t.pending.rows) == 0 {
		return err
	}
	for _, p := range t.pending.rows {
		err = errors.Join(err, t.waitRows(p))
	}
	t.pending.rows = t.pending.rows[:0]
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

func (t *Trainer) waitRows(p pulled) error {
	if p.to == nil {
		return t.wait(p.pull)
	}
	start := time.Now()
	clocked, err := p.pull.WaitClocked()
	t.waited += time.Since(start)
	if err == nil {
		p.to.take(clocked)
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
