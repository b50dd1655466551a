package shard

import (
	"context"
	"errors"

	"github.com/ringo-ml/ringo/internal/server/rows"
)

// prefetchRows is the number of rows that Prefetch loads at a time: 10 ms of SSD reads under the
// gate.
const prefetchRows = 1024

// Prefetch loads rows of the store into memory, for a later Pull, and returns their number. It
// changes no result: no key is created, counted or admitted. Prefetch never waits for memory. It
// ends when memory is full, in favour of rows of running calls, when ctx is done, and at any error,
// for the Pull to return. Without a store Prefetch returns 0.
func (t *Table) Prefetch(ctx context.Context, keys []uint64) (brought int) {
	if t.store == nil {
		return 0
	}
	tr := t.batches.Get()
	defer t.batches.Put(tr)
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

var errNoRoom = errors.New("no room at once")

// prefetch loads the rows of the batch that are only in the store.
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

// leaveOut removes keys with a row in memory from the batch's keys, which are unique.
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
