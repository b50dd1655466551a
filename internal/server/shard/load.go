package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"

	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/store"
)

// Load loads a checkpoint's rows into a table before its use, and returns its epoch: a full
// checkpoint first, then deltas in order.
//
// With a nil keep all rows are loaded, and the marks of their pieces are retained until Replayed,
// so that a Push skips rows that already include the push. Otherwise Load loads the keys that keep
// accepts, without marks. If the number of servers has changed, each server loads its keys from the
// checkpoints of all old servers: all full checkpoints first, then all first deltas, and so on.
//
// Load also loads the counts of keys without a row; with keep, the counts of several servers are
// merged, with the maximum per counter.
//
// The owner (of) must be the same as in Save. Damage returns a *DamageError, another version
// errVersion. After an error only Close is allowed.
func (t *Table) Load(ctx context.Context, dir, of string, keep func(key uint64) bool) (epoch uint64, err error) {
	t.slow.Lock()
	defer t.slow.Unlock()
	l := &loader{t: t, of: of, keep: keep}
	err = l.load(ctx, dir)
	return l.h.Epoch, t.fault("loading "+dir, err)
}

type loader struct {
	t      *Table
	of     string
	keep   func(key uint64) bool
	h      header
	later  uint16 // epochs between the checkpoint and the table
	pieces []heldPiece

	// keys and the next fields are buffers for a piece's rows.
	keys   []uint64
	values []float32
	usage  []rows.Usage
	in     []bool
	cold   []uint64
	found  store.Rows
	row    rows.Row
}

func (l *loader) load(ctx context.Context, dir string) error {
	for i, name := range sections {
		if err := l.section(ctx, filepath.Join(dir, string(name)), name, i == 0); err != nil {
			return err
		}
	}
	t := l.t
	if l.keep == nil {
		t.loaded = l.h.Epoch
		t.replay.Store(&replay{l.pieces})
	}
	return nil
}

func (l *loader) section(ctx context.Context, path string, name section, first bool) (err error) {
	r, f, err := openFile(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if first {
		l.h = r.header
	}
	if err := r.header.follows(&l.h, path, l.of, name); err != nil {
		return err
	}
	if name == countsSection {
		if err := l.beginCounts(r.header.Counting); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if first {
		if err := l.begin(); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	next := uint64(0)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		at := r.at
		p, err := r.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if name == memorySection {
			if p.first != next || next == 0 && r.pieces > 1 {
				return &DamageError{path, at, fmt.Errorf("a piece from hash %#x, want %#x", p.first, next)}
			}
			next = p.last + 1
			l.pieces = append(l.pieces, heldPiece{p.last, slices.Clone(p.marks)})
		}
		if name == countsSection {
			if err := l.lines(p); err != nil {
				return &DamageError{path, at, err}
			}
			continue
		}
		if err := l.apply(p, name); err != nil {
			return err
		}
	}
	if name == memorySection && (next != 0 || r.pieces == 0) {
		return r.damage("its pieces end at hash %#x", next)
	}
	return nil
}

// begin compares the checkpoint with the table and advances the table's epoch and day.
func (l *loader) begin() error {
	t, h := l.t, &l.h
	want := header{Table: t.cfg.Rows.Name, Dim: t.rows.Dim(), Rule: t.cfg.Rows.Rule.Name(), Seed: t.cfg.Rows.Seed}
	for _, p := range t.rows.Parts() {
		want.Parts = append(want.Parts, width{p.Name, p.Width})
	}
	if h.Table != want.Table || h.Dim != want.Dim || h.Rule != want.Rule || h.Seed != want.Seed || !slices.Equal(h.Parts, want.Parts) {
		return fmt.Errorf("it is of table %q with rows of %d weights, rule %s with state %v and seed %d; this one is %q, %d, %s, %v, %d",
			h.Table, h.Dim, h.Rule, h.Parts, h.Seed, want.Table, want.Dim, want.Rule, want.Parts, want.Seed)
	}
	if l.keep == nil {
		if has := t.cfg.Admission.text(); h.Admission != has {
			return fmt.Errorf("it was written with admission %q, this table has %q: give the same as before", h.Admission, has)
		}
		if h.Delta && h.Since != t.loaded {
			return fmt.Errorf("it is a delta since epoch %d, and epoch %d was loaded last: load the full checkpoint and its deltas in order", h.Since, t.loaded)
		}
		if n := t.rows.Len(); !h.Delta && (t.loaded > 0 || n > 0) {
			return fmt.Errorf("it is a full checkpoint, and the table has %d rows already: load it first", n)
		}
	}
	t.upkeep.Lock()
	defer t.upkeep.Unlock()
	t.gate.Lock()
	defer t.gate.Unlock()
	if h.Epoch >= t.clock.Load() {
		t.clock.Store(h.Epoch)
		t.days.borders = slices.Clone(h.Borders)
		t.rows.SetEpoch(uint16(h.Epoch))
	}
	l.later = uint16(t.clock.Load()) - uint16(h.Epoch)
	if h.Day > t.days.day {
		from := t.days.day
		t.days.day = h.Day
		return l.ageAll(from, h.Day)
	}
	return nil
}

// ageAll ages the rows loaded before into memory. Images in the store have their own day.
func (l *loader) ageAll(from, to uint32) error {
	var at rows.Cursor
	for more := true; more; {
		var err error
		if at, more, err = l.t.rows.Walk(at, shrinkRows, func(r *rows.Row) rows.Verdict {
			l.t.age(r, from, to)
			return rows.Keep
		}); err != nil {
			return err
		}
	}
	return nil
}

func (l *loader) apply(p *piece, name section) error {
	t := l.t
	l.keys, l.values, l.usage = l.keys[:0], l.values[:0], l.usage[:0]
	width := t.rows.Width()
	for i := range p.n {
		key := p.key(i)
		if l.keep != nil && !l.keep(key) {
			continue
		}
		l.keys = append(l.keys, key)
		if name == deletedSection {
			continue
		}
		at := len(l.values)
		l.values = slices.Grow(l.values, width)[:at+width]
		f := p.row(i, l.values[at:])
		t.view(&l.row, key, l.values[at:])
		t.age(&l.row, l.h.Day, t.days.day)
		f.Last += l.later // keeps the row's age
		f.Changed = true
		l.usage = append(l.usage, f)
	}
	if name == deletedSection {
		return l.remove()
	}
	if t.store == nil {
		_, err := t.rows.Import(l.keys, l.values, l.usage, true)
		return err
	}
	for lo := 0; lo < len(l.keys); lo += t.chunk {
		hi := min(len(l.keys), lo+t.chunk)
		if err := l.put(l.keys[lo:hi], l.values[lo*width:hi*width], l.usage[lo:hi]); err != nil {
			return err
		}
	}
	return nil
}

// put writes rows to memory, replacing those in memory or in the store.
func (l *loader) put(keys []uint64, values []float32, usage []rows.Usage) error {
	t := l.t
	if err := t.room.take(len(keys)); err != nil {
		return err
	}
	t.gate.RLock()
	defer t.gate.RUnlock()
	l.in = append(l.in[:0], make([]bool, len(keys))...)
	err := t.rows.Visit(keys, func(i int, r *rows.Row) rows.Verdict {
		l.in[i], usage[i].Stored = true, r.Usage.Stored
		return rows.Keep
	})
	if err == nil {
		err = l.findStored(keys, usage)
	}
	fresh := len(l.cold)
	if err == nil {
		_, err = t.rows.Import(keys, values, usage, true)
	}
	if err == nil {
		t.room.give(len(keys) - fresh)
	}
	return err
}

// findStored fills cold with the keys that are not in memory, and sets Stored for keys in the
// store.
func (l *loader) findStored(keys []uint64, usage []rows.Usage) error {
	t := l.t
	l.cold = l.cold[:0]
	for i, key := range keys {
		if !l.in[i] {
			l.cold = append(l.cold, key)
		}
	}
	if len(l.cold) == 0 || t.store.Table(t.cfg.Number).Rows == 0 {
		return nil
	}
	slices.Sort(l.cold)
	if err := t.store.Get(t.cfg.Number, l.cold, &l.found); err != nil {
		return err
	}
	for i, key := range keys {
		if _, ok := slices.BinarySearch(l.found.Keys, key); ok && !l.in[i] {
			usage[i].Stored = true
			t.counts.both.Add(1)
		}
	}
	return nil
}

// remove deletes the loader's keys.
func (l *loader) remove() error {
	t := l.t
	slices.Sort(l.keys)
	keys := slices.Compact(l.keys)
	t.upkeep.Lock()
	defer t.upkeep.Unlock()
	t.gate.Lock()
	defer t.gate.Unlock()
	if t.store != nil {
		if err := t.store.Delete(t.cfg.Number, keys, nil); err != nil {
			return err
		}
	}
	dropped := 0
	err := t.rows.Visit(keys, func(_ int, r *rows.Row) rows.Verdict {
		if r.Usage.Stored {
			t.counts.both.Add(-1)
		}
		dropped++
		return rows.Drop
	})
	t.room.give(dropped)
	return err
}

// replay records the applied pushes of the loaded rows: for each piece of the last checkpoint, its
// marks. Rows outside a delta were not changed since the previous checkpoint: the delta's marks
// hold for them too.
type replay struct{ pieces []heldPiece }

// heldPiece is a range of hashes, starting at the end of the previous one.
type heldPiece struct {
	last  uint64
	marks []rows.AppliedSeq
}

// holds reports whether rows with this hash include a push.
func (r *replay) holds(hash uint64, session int, seq uint64) bool {
	i, _ := slices.BinarySearchFunc(r.pieces, hash, func(p heldPiece, hash uint64) int {
		if p.last < hash {
			return -1
		}
		return 1
	})
	marks := r.pieces[i].marks
	at, ok := slices.BinarySearchFunc(marks, session, func(m rows.AppliedSeq, session int) int { return m.Session - session })
	return ok && marks[at].Seq >= seq
}

// deferred returns the part of a push that the rows do not yet include.
func (r *replay) deferred(t *Table, tr *loadBatch, session int, seq uint64, keys []uint64, grads []float32) ([]uint64, []float32) {
	dim := t.rows.PushDim()
	tr.leftKeys, tr.leftGrads = tr.leftKeys[:0], tr.leftGrads[:0]
	for i, key := range keys {
		if !r.holds(t.rows.Hash(key), session, seq) {
			tr.leftKeys = append(tr.leftKeys, key)
			tr.leftGrads = append(tr.leftGrads, grads[i*dim:][:dim]...)
		}
	}
	return tr.leftKeys, tr.leftGrads
}

// Replayed ends the replay of the log's pushes after the checkpoint: later pushes are new. It must
// not run during a Push.
func (t *Table) Replayed() error {
	t.counted.before = nil
	r := t.replay.Swap(nil)
	if r == nil {
		return nil
	}
	first := uint64(0)
	for _, p := range r.pieces {
		for _, m := range p.marks {
			if err := t.rows.RaiseMark(rows.StripeOf(first), m); err != nil {
				return t.fault("replayed", err)
			}
		}
		if p.last == math.MaxUint64 {
			break
		}
		first = p.last + 1
	}
	return nil
}
