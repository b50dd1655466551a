package shard

import (
	"context"
	"errors"
	"slices"

	"github.com/ringo-ml/ringo/internal/server/rows"
)

// eachRows is the approximate number of rows per call of Each's callback.
const eachRows = 1024

// Each calls do with batches of the rows of both tiers, in no order: keys and len(keys)*Dim
// weights, valid during the call only. Other calls may run concurrently: a row that exists
// throughout comes exactly once, with the values of some moment; rows never pushed may be missing.
// Each moves no row, and excludes Save, Shrink and Load. do should be fast, because changed rows
// stay in memory until the walk has passed them. An error of do ends Each.
func (t *Table) Each(ctx context.Context, do func(keys []uint64, weights []float32) error) error {
	t.slow.Lock()
	defer t.slow.Unlock()
	t.upkeep.Lock()
	shot := t.beginWalk()
	t.upkeep.Unlock()
	err := t.eachInMemory(ctx, do)
	t.endWalk()
	if err == nil && shot != nil {
		err = t.eachInStore(ctx, shot, do)
	}
	return t.fault("each", errors.Join(err, shot.cancel()))
}

// eachInMemory passes the rows without an image in the snapshot to do: a changed row gets no image
// before the walk has passed it.
func (t *Table) eachInMemory(ctx context.Context, do func(keys []uint64, weights []float32) error) error {
	var keys []uint64
	var weights []float32
	var at rows.Cursor
	for more := true; more; {
		keys, weights = keys[:0], weights[:0]
		last := uint64(0)
		err := ctx.Err()
		if err == nil {
			at, more, err = t.rows.WalkPiece(at, eachRows, func(p *rows.Piece) { last = p.Last }, func(r *rows.Row) rows.Verdict {
				if !r.Usage.Stored {
					keys = append(keys, r.Key)
					weights = append(weights, r.Weights...)
				}
				return rows.Keep
			})
		}
		if err != nil {
			return err
		}
		if more {
			t.saving.next.Store(last + 1)
		}
		if len(keys) == 0 {
			continue
		}
		if err := do(keys, weights); err != nil {
			return err
		}
	}
	return nil
}

// eachInStore passes the rows of the snapshot to do, with their current values from either tier.
func (t *Table) eachInStore(ctx context.Context, shot *snapshot, do func(keys []uint64, weights []float32) error) error {
	var keys []uint64
	var weights []float32
	flush := func() error {
		if len(keys) == 0 {
			return nil
		}
		n := len(keys) * t.rows.Dim()
		weights = slices.Grow(weights[:0], n)[:n]
		err := t.Peek(keys, weights)
		if err == nil {
			err = do(keys, weights)
		}
		keys = keys[:0]
		return err
	}
	err := shot.each(func(key uint64, _ []byte) error {
		if keys = append(keys, key); len(keys) < eachRows {
			return nil
		}
		return errors.Join(flush(), ctx.Err())
	})
	if err == nil {
		err = flush()
	}
	return err
}
