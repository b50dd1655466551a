package trainer

import (
	"errors"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/ps/client"
)

// batch is a step's data from the servers.
type batch struct {
	of     Batch         // copied, without ids and keys
	parts  []part        // parts by group
	rows   [][]float32   // weights by table; unused for copies
	asked  bool          // requested ahead of its step
	ids    int           // number of requested ids and keys
	copies bool          // set for copies of rows
	misses []cacheMisses // rows to pull into a cache, by table
}

// part has the rows of a group that a batch names.
type part struct {
	unique  keyIndex // distinct rows; unused for copies
	inverse []int32  // row of each id or key
}

// pending has the pulls in flight, of at most one step.
type pending struct {
	values *client.Pull
	rows   []pulled
}

type pulled struct {
	pull *client.Pull
	to   *cacheMisses // receives the rows; nil: they go directly to the batch
}

// pulling is PullRows or PeekRows of a session.
type pulling func(table int, step uint64, keys []uint64, dst []float32) (*client.Pull, error)

// Fetch loads the rows that a batch names, for Rows, and creates missing ones. It also loads the
// dense parameters for the step, unless the step has them from an earlier batch. It waits as the
// servers' consistency requires. After an Ask, the batch must be the same.
func (t *Trainer) Fetch(of Batch) error {
	err := t.turnTo(of, t.ask)
	if err == nil && t.pending.values == nil && (t.geo == nil && !t.current || t.geo != nil && t.geo.stale) {
		err = t.askDense()
	}
	t.current = true
	return errors.Join(err, t.await())
}

// Rows returns the rows of a table from the last Fetch or Peek, which include each row of the batch
// once. at has the row of each id, or of each key that the table is looked up by, and is undefined
// for other keys. Both are valid until the next Fetch, Peek or End or, in geo, until the exchange
// of copies.
func (t *Trainer) Rows(table int) (at []int32, rows []float32) {
	b := &t.batches[t.turn]
	if rows = b.rows[table]; b.copies {
		rows = t.geo.tables[table].weights
	}
	return b.parts[t.tables[table].group].inverse, rows
}

// Ask requests the rows of the next step's Fetch without waiting. Call Ask between Fetch and End,
// if the next batch is known; before an exchange of copies Ask has no effect, because rows are
// pulled again afterwards.
func (t *Trainer) Ask(of Batch) error {
	if t.exchanges() {
		return nil
	}
	return t.askAhead(of, t.step+1, t.ask)
}

// AskMore is Ask for the next batch of the same step.
func (t *Trainer) AskMore(of Batch) error { return t.askAhead(of, t.step, t.ask) }

// Peek loads rows as Fetch does, without dense parameters and without creating rows, for
// evaluation.
func (t *Trainer) Peek(of Batch) error {
	err := t.turnTo(of, t.peek)
	return errors.Join(err, t.await())
}

// AskPeek requests the rows of the next Peek without waiting.
func (t *Trainer) AskPeek(of Batch) error { return t.askAhead(of, t.step, t.peek) }

func (t *Trainer) askAhead(of Batch, step uint64, ask func(*batch, uint64, Batch) error) error {
	b := &t.batches[t.turn^1]
	b.asked, b.ids = true, len(of.IDs)+len(of.Keys)
	return ask(b, step, of)
}

// turnTo switches to the next batch, and requests its rows unless an earlier Ask or AskPeek did.
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

func (t *Trainer) ask(b *batch, step uint64, of Batch) error {
	if t.geo != nil {
		return t.askCopies(b, step, of)
	}
	return t.askRows(b, step, of, training)
}

func (t *Trainer) peek(b *batch, step uint64, of Batch) error {
	return t.askRows(b, step, of, evaluating)
}

func (t *Trainer) askDense() (err error) {
	t.pending.values, err = t.session.PullDense(array, t.step, 0, t.cfg.Values)
	return err
}

// take retains the offsets of a batch: PushClicks needs them to count shows. The parts have the
// contents of the bags.
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

// askCopies requests the rows without copies.
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

// pull requests rows of a table, except rows in its cache; l then receives the requested rows.
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

// await waits for all pulls in flight.
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

// grown returns x with n more, undefined values.
func grown(x []float32, n int) []float32 {
	if need := len(x) + n; cap(x) < need {
		x = append(make([]float32, 0, need+need/4), x...)
	}
	return x[:len(x)+n]
}
