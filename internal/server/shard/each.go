package shard

import (
	"context"
	"errors"
	"slices"

	"github.com/ringo-ml/ringo/internal/server/rows"
)

// eachRows is how many rows Each hands out at a time, more or less.
const eachRows = 1024

// Each calls do with the rows of both tiers, some at a time, in no order: keys and
// len(keys)*Dim weights, valid during the call only. While others work on the table a
// row that is there all the time comes exactly once, as it is at some moment; rows
// that were never pushed may be left out. It moves no row; Save, Shrink and Load wait
// for it. do is not to be slow: changed rows stay in memory until it has had them. Its
// error ends it.
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

// eachInMemory hands out the rows of which the snapshot has no image: a row that was
// changed cannot get one before the walk has passed it.
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

// eachInStore hands out the rows that the snapshot has, wherever they are now.
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
