package shard

import (
	"context"
	"errors"

	"github.com/ringo-ml/ringo/internal/server/rows"
)

// prefetchRows is how many rows Prefetch brings in at a time: about 10 ms of an SSD's reads, for which it holds the gate.
const prefetchRows = 1024

// Prefetch brings those rows of keys into memory that are in the store, for a Pull that will follow, and returns how many it brought. It is
// only about time: no row is made, no key is counted or admitted, and every Pull has the values that it has without. It waits for nobody: it
// ends early when memory has no room at once, so that it never takes the place of what calls under way bring in, when ctx is done, and
// at any fault, which the Pull meets again. Without a store there is nothing to do.
func (t *Table) Prefetch(ctx context.Context, keys []uint64) (brought int) {
	if t.store == nil {
		return 0
	}
	tr := t.getLoadBatch()
	defer t.putLoadBatch(tr)
	tr.missing = tr.missing[:0]
	for i := range keys {
		tr.missing = append(tr.missing, int32(i))
	}
	tr.sort(keys)
	for lo, going := 0, true; lo < len(tr.missingKeys) && going && ctx.Err() == nil; {
		hi := tr.cut(lo, min(t.chunk, prefetchRows))
		made, err := t.prefetch(tr)
		brought += made
		lo, going = hi, err == nil
	}
	t.counts.prefetched.Add(int64(brought))
	return brought
}

// errNoRoom ends a Prefetch.
var errNoRoom = errors.New("no room at once")

// prefetch brings in those of the trip's keys that are in the store and not in memory.
func (t *Table) prefetch(tr *loadBatch) (made int, err error) {
	if err := t.leaveOut(tr); err != nil || len(tr.keys) == 0 {
		return 0, err
	}
	n := len(tr.keys)
	if !t.room.try(n) {
		return 0, errNoRoom
	}
	defer func() { t.room.give(n - made) }()
	t.gate.RLock()
	defer t.gate.RUnlock()
	return t.readAll(tr, prefetching)
}

// leaveOut leaves out of the trip's keys, which are unique, those that have a row in memory.
func (t *Table) leaveOut(tr *loadBatch) error {
	for i := range tr.from {
		tr.from[i] = absent
	}
	err := t.rows.Visit(tr.keys, func(i int, _ *rows.Row) rows.Verdict {
		tr.from[i] = 0
		return rows.Keep
	})
	n := 0
	for i, key := range tr.keys {
		if tr.from[i] == absent {
			tr.keys[n] = key
			n++
		}
	}
	tr.keys, tr.from = tr.keys[:n], tr.from[:n]
	return err
}
