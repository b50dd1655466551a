package shard

import (
	"context"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/store"
)

// tombstones are deleted keys, for deltas.
type tombstones struct {
	sync.Mutex
	list []tombstone
}

type tombstone struct {
	epoch uint64 // epoch of the deletion
	keys  []uint64
}

// Committed reports that the checkpoint with this epoch is durable and the base of all later
// deltas: earlier deletions are dropped.
func (t *Table) Committed(epoch uint64) {
	t.deleted.Lock()
	defer t.deleted.Unlock()
	t.deleted.list = slices.DeleteFunc(t.deleted.list, func(g tombstone) bool { return g.epoch < epoch })
}

// bury records deleted keys.
func (t *Table) bury(keys []uint64) {
	t.counts.deleted.Add(int64(len(keys)))
	if !t.cfg.Deltas || len(keys) == 0 {
		return
	}
	t.deleted.Lock()
	defer t.deleted.Unlock()
	list, now := t.deleted.list, t.clock.Load()
	if n := len(list); n > 0 && list[n-1].epoch == now {
		list[n-1].keys = append(list[n-1].keys, keys...)
		return
	}
	t.deleted.list = append(list, tombstone{now, slices.Clone(keys)})
}

const shrinkRows = 4096

// Shrink ages all rows by days, 1 or more, and deletes rows selected by the Shrinker, in both
// tiers, while pulls and pushes continue. Cost: a read of all rows. After an error the days have
// passed nevertheless, and some rows remain that should be deleted.
//
// Shrink is not logged: a caller with a log repeats Shrink at its position in the log, or makes a
// checkpoint after it.
func (t *Table) Shrink(ctx context.Context, days int) (deleted int64, err error) {
	if err := checkDays(days); err != nil {
		return 0, t.fault("shrink", err)
	}
	t.slow.Lock()
	defer t.slow.Unlock()
	if t.filter != nil {
		t.counted.mu.Lock()
		t.filter.decay()
		t.counted.mu.Unlock()
	}
	before := t.counts.deleted.Load()
	err = t.shrinkMemory(days)
	if err == nil && t.store != nil && t.cfg.Shrinker != nil {
		err = t.shrinkStore(ctx)
	}
	return t.counts.deleted.Load() - before, t.fault("shrink", err)
}

// shrinkMemory advances the days and shrinks the rows in memory.
func (t *Table) shrinkMemory(days int) error {
	t.upkeep.Lock()
	t.gate.Lock()
	t.tick()
	t.days.pass(days, t.clock.Load())
	if t.cfg.Shrinker != nil {
		t.days.walking, t.days.passing, t.days.below = true, uint32(days), 0
	}
	t.gate.Unlock()
	t.upkeep.Unlock()
	if t.cfg.Shrinker == nil {
		return nil
	}
	var first error
	var at rows.Cursor
	for more := true; more; { // always to the end: rows must have the same day
		var err error
		at, more, err = t.shrinkPiece(at, days)
		if first == nil {
			first = err
		}
	}
	return first
}

func (t *Table) shrinkPiece(at rows.Cursor, days int) (next rows.Cursor, more bool, err error) {
	t.upkeep.Lock()
	defer t.upkeep.Unlock()
	t.gate.Lock()
	defer t.gate.Unlock()
	var dead, stored []uint64
	last := uint64(0)
	next, more, err = t.rows.WalkPiece(at, shrinkRows, func(p *rows.Piece) { last = p.Last }, func(r *rows.Row) rows.Verdict {
		t.cfg.Shrinker.Age(r, days)
		switch {
		case !t.deletes(r):
			r.Usage.Changed = r.Usage.Changed || r.Usage.Stored && t.cfg.Shrinker.Days()
		case r.Usage.Stored:
			stored = append(stored, r.Key)
		default:
			dead = append(dead, r.Key)
			return rows.Drop
		}
		return rows.Keep
	})
	if t.days.below = last + 1; !more {
		t.days.walking = false
	}
	if err == nil && len(stored) > 0 {
		dead, err = t.deleteBoth(stored, dead)
	}
	t.bury(dead)
	if t.room != nil {
		t.room.give(len(dead))
	}
	return next, more, err
}

// unseen returns the days since a row with this usage was touched, 0 if the Shrinker does not need
// them. A row loaded after some days, or in memory when a day begins, is marked as changed:
// otherwise eviction could leave its old age in the store.
func (t *Table) unseen(f rows.Usage) int {
	if t.cfg.Shrinker == nil || !t.cfg.Shrinker.Days() {
		return 0
	}
	return t.days.unseen(f, t.clock.Load())
}

func (t *Table) deletes(r *rows.Row) bool {
	return t.cfg.Shrinker.Deletes(r, t.unseen(r.Usage))
}

// deleteBoth deletes rows from both tiers, except rows made worth keeping by a concurrent pull or
// push. It appends the deleted keys to dead.
func (t *Table) deleteBoth(keys, dead []uint64) ([]uint64, error) {
	slices.Sort(keys)
	if err := t.store.Delete(t.cfg.Number, keys, t.sizes(len(keys))); err != nil {
		return dead, err
	}
	t.counts.both.Add(-int64(len(keys)))
	err := t.rows.Visit(keys, func(_ int, r *rows.Row) rows.Verdict {
		if t.deletes(r) {
			dead = append(dead, r.Key)
			return rows.Drop
		}
		r.Usage.Stored, r.Usage.Changed = false, true
		return rows.Keep
	})
	return dead, err
}

func (t *Table) sizes(n int) []int32 { return slices.Repeat([]int32{int32(t.imageBytes())}, n) }

// shrinkStore shrinks the rows that are only in the store.
func (t *Table) shrinkStore(ctx context.Context) error {
	var found store.Rows
	var row rows.Row
	var keys []uint64
	values := make([]float32, t.rows.Width())
	seen := int64(0)
	err := t.store.Iterate(t.cfg.Number, func(key uint64, image []byte) error {
		if seen++; seen%shrinkRows == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		goes, err := t.imageGoes(&row, values, key, image)
		if err != nil || !goes {
			return err
		}
		if keys = append(keys, key); len(keys) < shrinkRows {
			return nil
		}
		err = t.deleteStored(keys, &found, &row, values)
		keys = keys[:0]
		return err
	})
	if err == nil && len(keys) > 0 {
		err = t.deleteStored(keys, &found, &row, values)
	}
	return err
}

// imageGoes reports whether to delete a row of the store. Only Shrink, its caller, writes dayClock.
func (t *Table) imageGoes(row *rows.Row, values []float32, key uint64, image []byte) (bool, error) {
	f, day, err := t.readImage(key, image, values)
	if err != nil {
		return false, err
	}
	t.view(row, key, values)
	row.Usage = f
	t.age(row, day, t.days.day)
	return t.deletes(row), nil
}

// deleteStored deletes rows that are only in the store, if the Shrinker deletes the current image.
func (t *Table) deleteStored(keys []uint64, found *store.Rows, row *rows.Row, values []float32) error {
	t.upkeep.Lock()
	defer t.upkeep.Unlock()
	t.gate.Lock()
	defer t.gate.Unlock()
	slices.Sort(keys)
	in := make([]bool, len(keys))
	err := t.rows.Visit(keys, func(i int, _ *rows.Row) rows.Verdict { in[i] = true; return rows.Keep })
	if err != nil {
		return err
	}
	cold := keys[:0]
	for i, key := range keys {
		if !in[i] {
			cold = append(cold, key)
		}
	}
	if err := t.store.Get(t.cfg.Number, cold, found); err != nil {
		return err
	}
	dead := cold[:0]
	for i, key := range found.Keys {
		goes, err := t.imageGoes(row, values, key, found.Row(i))
		if err != nil {
			return err
		}
		if goes {
			dead = append(dead, key)
		}
	}
	if err := t.store.Delete(t.cfg.Number, dead, t.sizes(len(dead))); err != nil {
		return err
	}
	t.bury(dead)
	return nil
}
