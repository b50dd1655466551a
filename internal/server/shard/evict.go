package shard

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/store"
)

// Eviction samples sampleRows rows in hash order, which is random: a sample represents all rows. It
// evicts the quarter with the lowest worth. A round evicts at most roundRows, so that each write to
// the store is large and sorted, and drops dropRows at a time under the gate.
const (
	sampleRows  = 1024
	samplePart  = 4
	roundRows   = 16384
	dropRows    = 2048
	pauseForRow = 2 * time.Millisecond // wait when no row can be evicted
)

// hand is eviction's position in its walk over all rows, and its buffers.
type hand struct {
	at     rows.Cursor
	sample []candidate
	keys   []uint64
	fates  []evictResult
	old    []int32
	last   []uint16 // epochs of the images
	data   []byte
	images store.Rows
}

type candidate struct {
	key   uint64
	worth float64
}

type evictResult uint8

const (
	stays evictResult = iota
	clean             // current in the store, or reproducible
	written
)

// evicts keeps memory within its budget until Close.
func (t *Table) evicts() {
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-t.room.wake:
		}
		for want := t.room.begin(); want > 0; want = t.room.begin() {
			n, err := t.evictSome(want)
			t.room.end(err)
			if err != nil || t.ctx.Err() != nil {
				break // waiting calls get the error and wake the evictor again
			}
			if n == 0 {
				t.pause()
			}
		}
	}
}

func (t *Table) pause() {
	timer := time.NewTimer(pauseForRow)
	defer timer.Stop()
	select {
	case <-t.ctx.Done():
	case <-timer.C:
	}
}

// Evict evicts about the given number of rows, the least valuable first, or as many as possible.
// Tests and operators use it; evictions for the budget are automatic.
func (t *Table) Evict(want int) (evicted int, err error) {
	if t.store == nil {
		return 0, t.fault("evict", errNoStore)
	}
	for evicted < want {
		n, err := t.evictSome(want - evicted)
		evicted += n
		if err != nil || n == 0 {
			return evicted, t.fault("evict", err)
		}
	}
	return evicted, nil
}

func (t *Table) evictSome(want int) (dropped int, err error) {
	t.upkeep.Lock()
	defer t.upkeep.Unlock()
	if err := t.choose(min(want, roundRows)); err != nil {
		return 0, err
	}
	writing := t.writeOut()
	dropped, err = t.dropOut()
	t.room.give(dropped)
	t.counts.evicted.Add(int64(dropped))
	return dropped, errors.Join(writing, err)
}

// choose fills the hand's keys with rows to evict, sorted, in at most one round through all rows.
func (t *Table) choose(want int) error {
	h := &t.hand
	h.keys = h.keys[:0]
	for ends := 0; len(h.keys) < want && ends < 2; {
		h.sample = h.sample[:0]
		barred := false
		next, more, err := t.rows.WalkPiece(h.at, sampleRows,
			func(p *rows.Piece) { barred = t.saving.bars(p.Last) },
			func(r *rows.Row) rows.Verdict {
				if !barred || !r.Usage.Changed {
					h.sample = append(h.sample, candidate{r.Key, t.cfg.Policy(r, t.rows.Epoch())})
				}
				r.Usage.Touches /= 2
				return rows.Keep
			})
		if err != nil {
			return err
		}
		h.take(want - len(h.keys))
		if h.at = next; !more {
			ends++
			t.tick()
		}
	}
	slices.Sort(h.keys)
	h.keys = slices.Compact(h.keys) // the round may pass its start
	return nil
}

func (h *hand) take(most int) {
	slices.SortFunc(h.sample, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.worth, b.worth), cmp.Compare(a.key, b.key))
	})
	n := (len(h.sample) + samplePart - 1) / samplePart
	for _, l := range h.sample[:min(n, most)] {
		h.keys = append(h.keys, l.key)
	}
}

// writeOut puts the changed rows among the chosen ones into the store. After an error these rows
// stay in memory and are marked as changed again.
func (t *Table) writeOut() error {
	h := &t.hand
	if err := t.copyOut(); err != nil || h.images.Len() == 0 {
		return err
	}
	err := t.put(&h.images)
	if err == nil {
		t.counts.written.Add(int64(h.images.Len()))
		return nil
	}
	return errors.Join(err, t.rows.Visit(h.keys, func(i int, r *rows.Row) rows.Verdict {
		if h.fates[i] == written {
			h.fates[i], r.Usage.Changed = stays, true
		}
		return rows.Keep
	}))
}

// copyOut copies the images of chosen rows with flag Changed, and clears the flag.
func (t *Table) copyOut() error {
	h, size := &t.hand, t.imageBytes()
	n := len(h.keys)
	h.fates = slices.Grow(h.fates[:0], n)[:n]
	h.old = slices.Grow(h.old[:0], n)[:n]
	h.last = slices.Grow(h.last[:0], n)[:n]
	h.data = slices.Grow(h.data[:0], n*size)[:n*size]
	clear(h.fates)
	err := t.rows.Visit(h.keys, func(i int, r *rows.Row) rows.Verdict {
		if !r.Usage.Changed {
			h.fates[i] = clean
			return rows.Keep
		}
		hash := t.rows.Hash(r.Key)
		if t.saving.bars(hash) {
			return rows.Keep
		}
		h.fates[i], h.old[i], h.last[i] = written, -1, r.Usage.Last
		if r.Usage.Stored {
			h.old[i] = int32(size)
		}
		putImage(h.data[i*size:][:size], r, t.days.at(hash))
		r.Usage.Changed = false
		return rows.Keep
	})
	h.images.Reset()
	for i, key := range h.keys {
		if h.fates[i] == written {
			h.images.Add(key, h.data[i*size:][:size])
			h.images.Old = append(h.images.Old, h.old[i])
		}
	}
	return err
}

// put puts rows into the store. A full store is compacted first if that frees space.
func (t *Table) put(images *store.Rows) error {
	err := t.store.Put(t.cfg.Number, images)
	var full *store.LimitError
	if !errors.As(err, &full) || full.Owed <= full.Limit/16 {
		return err
	}
	if err := t.store.Compact(t.ctx); err != nil {
		return errors.Join(full, err)
	}
	return t.store.Put(t.cfg.Number, images)
}

// dropOut drops the chosen rows that were not changed since.
func (t *Table) dropOut() (dropped int, err error) {
	h := &t.hand
	days := t.cfg.Shrinker != nil && t.cfg.Shrinker.Days()
	for lo := 0; lo < len(h.keys) && err == nil; lo += dropRows {
		hi := min(len(h.keys), lo+dropRows)
		t.gate.Lock()
		err = t.rows.Visit(h.keys[lo:hi], func(i int, r *rows.Row) rows.Verdict {
			fate := h.fates[lo+i]
			if fate == stays {
				return rows.Keep
			}
			if fate == written && h.last[lo+i] != r.Usage.Last {
				// Touched during the write. If only pulls did, the image is right except for the
				// epoch.
				r.Usage.Changed = r.Usage.Changed || days
				t.staysStored(r)
				return rows.Keep
			}
			if r.Usage.Changed {
				if fate == written {
					t.staysStored(r)
				}
				return rows.Keep
			}
			if r.Usage.Stored {
				t.counts.both.Add(-1)
			}
			dropped++
			return rows.Drop
		})
		t.gate.Unlock()
	}
	return dropped, err
}

// staysStored marks a row that stays in memory and now has an image in the store.
func (t *Table) staysStored(r *rows.Row) {
	if !r.Usage.Stored {
		r.Usage.Stored = true
		t.counts.both.Add(1)
	}
}
