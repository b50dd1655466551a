package shard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/server/rows"
)

// progress is the position of Save's walk over memory. upkeep guards it, except for next, which
// only grows during a walk.
type progress struct {
	walking bool
	next    atomic.Uint64 // rows with lower hashes are saved
}

// bars reports whether changed rows with this hash must stay in memory: an image in the store would
// be newer than its snapshot.
func (p *progress) bars(hash uint64) bool { return p.walking && hash >= p.next.Load() }

// Save writes the rows of both tiers to a directory, which must not exist and appears atomically:
// all rows or, with a nonzero since, those that were pulled, pushed or deleted since the epoch of
// an earlier checkpoint, loaded after that checkpoint. A delta needs Config.Deltas. Save returns
// the checkpoint's epoch: the base of the next delta, once this checkpoint is durable.
//
// Pulls, pushes and evictions continue; changed rows stay in memory until the walk has passed them.
// Cost: one read of both tiers, and a write of the saved rows.
//
// The marks of a piece are the pushes that its rows include; other pieces may include later pushes.
//
// Each file has its owner (of): job, server, table and checkpoint. Load requires the same value.
func (t *Table) Save(ctx context.Context, dir, of string, since uint64) (epoch uint64, err error) {
	t.slow.Lock()
	defer t.slow.Unlock()
	if t.closed.Load() {
		err = rows.ErrClosed
	} else if since != 0 {
		err = t.checkSince(since)
	}
	if err == nil {
		err = dirlock.Publish(dir, func(tmp string) (err error) {
			epoch, err = t.saveTo(ctx, tmp, header{Of: of, Delta: since != 0, Since: since})
			return err
		})
	}
	return epoch, t.fault("saving "+dir, err)
}

// Deltas reports whether Save accepts a nonzero since.
func (t *Table) Deltas() bool { return t.cfg.Deltas }

// ErrTooLate means that the base of a delta is too old: the caller must save all rows.
var ErrTooLate = errors.New("too late for a delta: save all")

// checkSince returns an error if no delta since an epoch is possible.
func (t *Table) checkSince(since uint64) error {
	now := t.clock.Load()
	switch {
	case !t.cfg.Deltas:
		return errors.New("a delta of a table without them: set Deltas")
	case since > now:
		return fmt.Errorf("a delta since epoch %d: want that of an earlier checkpoint, up to %d", since, now)
	case now+1-since > math.MaxUint16:
		return fmt.Errorf("a delta since epoch %d: it is %d now, and rows tell at most %d apart: %w", since, now, math.MaxUint16, ErrTooLate)
	}
	return nil
}

type saving struct {
	t    *Table
	ctx  context.Context
	dir  string
	h    header
	shot *snapshot   // nil without a store
	keys *filterCopy // nil without counts
}

func (t *Table) saveTo(ctx context.Context, dir string, h header) (epoch uint64, err error) {
	s := &saving{t: t, ctx: ctx, dir: dir, h: h}
	s.begin()
	err = s.memory()
	t.endWalk()
	if err == nil {
		err = s.store()
	}
	if err == nil {
		err = s.deleted()
	}
	if err == nil {
		err = s.counts()
	}
	return s.h.Epoch, errors.Join(err, s.shot.cancel())
}

// begin starts an epoch and the walk.
func (s *saving) begin() {
	t := s.t
	t.upkeep.Lock()
	defer t.upkeep.Unlock()
	t.tick()
	s.h.Table, s.h.Dim, s.h.Rule, s.h.Seed = t.cfg.Rows.Name, t.rows.Dim(), t.cfg.Rows.Rule.Name(), t.cfg.Rows.Seed
	for _, p := range t.rows.Parts() {
		s.h.Parts = append(s.h.Parts, width{p.Name, p.Width})
	}
	s.h.Epoch, s.h.Day, s.h.Borders = t.clock.Load(), t.days.day, t.days.borders
	s.h.Admission = t.cfg.Admission.text()
	s.keys = t.copyFilter() // before any row is read: the rows of all pulls counted in the copy exist
	s.shot = t.beginWalk()
}

// beginWalk starts a walk over memory: it takes the store's snapshot, nil without a store, and bars
// changed rows from eviction. The caller holds upkeep, so that no row is moving between the tiers,
// and slow, because walks are sequential.
func (t *Table) beginWalk() *snapshot {
	if t.store == nil {
		return nil
	}
	t.saving.next.Store(0)
	t.saving.walking = true
	return t.snapshot()
}

// endWalk allows the eviction of all rows again.
func (t *Table) endWalk() {
	t.upkeep.Lock()
	defer t.upkeep.Unlock()
	t.saving.walking = false
}

// has reports whether the checkpoint includes a row. Eviction starts epochs during a save: a row's
// epoch may be later than the checkpoint's.
func (s *saving) has(f rows.Usage) bool {
	now := s.t.rows.Epoch()
	return !s.h.Delta || f.Age(now) <= int(now-uint16(s.h.Since))
}

// usage limits a row's usage to the checkpoint's epoch.
func (s *saving) usage(f rows.Usage) rows.Usage {
	if later := f.Last - uint16(s.h.Epoch); later < 1<<15 {
		f.Last = uint16(s.h.Epoch)
	}
	return f
}

func (s *saving) section(name section, fill func(w *writer) error) error {
	h := s.h
	h.Section = name
	if name == countsSection && s.keys != nil {
		h.Counting = &s.keys.counting
	}
	w, err := create(filepath.Join(s.dir, string(name)), &h)
	if err != nil {
		return err
	}
	if err := fill(w); err != nil {
		return errors.Join(err, w.f.Close())
	}
	return w.finish()
}

// pieceRows is the number of rows copied under a stripe's lock: some 100 KiB of rows of width 16.
func (s *saving) pieceRows() int {
	return max(1, min(1024, (4<<20)/rowsPiece.rowBytes(s.t.rows.Width())))
}

func (s *saving) memory() error {
	t := s.t
	return s.section(memorySection, func(w *writer) error {
		var at rows.Cursor
		for more := true; more; {
			if err := s.ctx.Err(); err != nil {
				return err
			}
			last := uint64(0)
			var err error
			at, more, err = t.rows.WalkPiece(at, s.pieceRows(), func(p *rows.Piece) {
				last = p.Last
				w.begin(rowsPiece, p.First, p.Last, p.Marks)
			}, func(r *rows.Row) rows.Verdict {
				if s.has(r.Usage) {
					w.add(r, s.usage(r.Usage))
				}
				return rows.Keep
			})
			if err != nil {
				return err
			}
			if more {
				t.saving.next.Store(last + 1)
			}
			if err := w.flush(); err != nil {
				return err
			}
		}
		return nil
	})
}

// store writes the rows of the snapshot, aged to today.
func (s *saving) store() error {
	return s.section(storeSection, func(w *writer) error {
		if s.shot == nil {
			return nil
		}
		t, most := s.t, s.pieceRows()
		values := make([]float32, t.rows.Width())
		var row rows.Row
		begin := func() { w.begin(rowsPiece, 0, math.MaxUint64, nil) }
		begin()
		err := s.shot.each(func(key uint64, image []byte) error {
			f, day, err := t.readImage(key, image, values)
			if err != nil || !s.has(f) {
				return err
			}
			t.view(&row, key, values)
			t.age(&row, day, s.h.Day)
			w.add(&row, s.usage(f))
			if w.n < most {
				return nil
			}
			err = errors.Join(w.flush(), s.ctx.Err())
			begin()
			return err
		})
		if err != nil {
			return err
		}
		return w.flush()
	})
}

// deleted writes the keys deleted since the previous checkpoint. Shrink is excluded until the end.
func (s *saving) deleted() error {
	return s.section(deletedSection, func(w *writer) error {
		if !s.h.Delta {
			return nil
		}
		const most = 64 << 10
		g := &s.t.deleted
		g.Lock()
		defer g.Unlock()
		for _, grave := range g.list {
			if grave.epoch < s.h.Since {
				continue
			}
			for lo := 0; lo < len(grave.keys); lo += most {
				w.begin(keysPiece, 0, math.MaxUint64, nil)
				for _, key := range grave.keys[lo:min(len(grave.keys), lo+most)] {
					w.addKey(key)
				}
				if err := w.flush(); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
