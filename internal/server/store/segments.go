package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/dirlock"
)

// Segments is a store in one file with the lifetime of its process: Close removes the file, and a
// killed process's file is overwritten. Rows are appended to segments, and an index in memory has
// the place of each; mostly empty segments are copied together and reused, as in a log-structured
// file system (Rosenblum and Ousterhout, ACM TOCS 10, 1992).
//
// Cost: a read for an existing row, no read for a missing row. A row is written once, and again
// when its segment is cleaned: about once more if half of the file is rows. In memory each row
// takes 9 to 10 bytes in the index, and the file a bit per 16 bytes.
type Segments struct {
	dir   string
	path  string
	lock  *dirlock.Lock
	file  *os.File
	fd    int
	limit int64 // 0: no limit
	size  int64 // bytes of a segment

	closed atomic.Bool
	waits  atomic.Bool                 // the system does not support readNow
	damage atomic.Pointer[DamageError] // first damage found: it blocks writes
	placed atomic.Pointer[map[uint32]*placed]
	sizes

	mu    sync.Mutex // held by writes; guards the next fields
	slots []*segment // segments by position in the file, nil if free
	live  int64      // bytes of live records
	peak  int64
	buf   []byte // records to write
	prior []prior
	at    []place
	moved Rows // records being cleaned, and their places
	from  []place
	r     reading

	written, cleaned int64 // bytes and segments, for tests
}

var _ Store = (*Segments)(nil)

type placed struct {
	number uint32
	seed   uint32 // seed of the table's checksums: a record of another table is damage
	index  index
	row    atomic.Int64 // bytes of the last row written: the expected size of a read
	active *segment     // receives records; guarded by Segments.mu
}

// MinLimitBytes is the minimum limit of a store.
const MinLimitBytes = 16 << 20

const (
	leastSegment = 256 << 10
	mostSegment  = 8 << 20
	segmentsFile = "rows.segments"
)

// OpenSegments opens a store in a directory, created if missing, and locks the directory
// ([dirlock.ErrHeld] if another process has it). limit is the maximum size of the file, at least
// MinLimitBytes, 0 for no limit; two segments are reserved for cleaning: 1/32 of the limit, at most
// 16 MiB. A row has at most 128 KiB.
func OpenSegments(dir string, limit int64) (*Segments, error) {
	fail := func(err error) (*Segments, error) { return nil, fmt.Errorf("store: opening %s: %w", dir, err) }
	if limit < 0 || limit > 0 && limit < MinLimitBytes {
		return fail(fmt.Errorf("limit of %d bytes: want 0 (none), or %d or more", limit, MinLimitBytes))
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fail(err)
	}
	lock, err := dirlock.Take(dir)
	if err != nil {
		return fail(err)
	}
	s := &Segments{dir: dir, path: filepath.Join(dir, segmentsFile), lock: lock, limit: limit, size: mostSegment}
	if limit > 0 {
		s.size = min(max(limit/64&^(unit-1), leastSegment), mostSegment)
	}
	s.placed.Store(&map[uint32]*placed{})
	if s.file, err = os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666); err != nil {
		return fail(errors.Join(err, lock.Release()))
	}
	atRandom(s.file)
	s.fd = int(s.file.Fd())
	return s, nil
}

// table returns a table with rows, or nil.
func (s *Segments) table(number uint32) *placed { return (*s.placed.Load())[number] }

// newTable returns the table, created if necessary. s.mu is held.
func (s *Segments) newTable(number uint32) *placed {
	if t := s.table(number); t != nil {
		return t
	}
	t := &placed{number: number, seed: seedOf(number)}
	t.row.Store(100)
	all := maps.Clone(*s.placed.Load())
	all[number] = t
	s.placed.Store(&all)
	return t
}

func (s *Segments) fail(op string, table uint32, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("store: %s: %s of table %d: %w", s.dir, op, table, err)
}

func (s *Segments) writable() error {
	if s.closed.Load() {
		return ErrClosed
	}
	if e := s.damage.Load(); e != nil {
		return e
	}
	return nil
}

// Get implements Store. Rows may be from different moments of the call.
func (s *Segments) Get(table uint32, keys []uint64, found *Rows) error {
	found.Reset()
	if err := checkKeys(keys); err != nil {
		return fmt.Errorf("store: get: %w", err)
	}
	if s.closed.Load() {
		return ErrClosed
	}
	if t := s.table(table); t != nil {
		r := readings.Get().(*reading)
		defer readings.Put(r)
		if err := s.gather(t, r, keys, found); err != nil {
			found.Reset()
			return s.fail("get", table, err)
		}
	}
	return nil
}

// Put implements Store. On a full disk it returns ENOSPC, without a loss of earlier rows. It first
// cleans segments if the limit requires it, or if less than two thirds of the file are rows.
func (s *Segments) Put(table uint32, rows *Rows) error {
	if err := rows.check(); err != nil {
		return fmt.Errorf("store: put: %w", err)
	}
	if err := s.writable(); err != nil || rows.Len() == 0 {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.newTable(table)
	err := s.room(t, rows)
	if err == nil {
		err = s.priors(t, rows.Keys, rows.Old)
	}
	if err == nil {
		err = s.append(t, rows)
	}
	if err != nil {
		return s.fail("put", table, err)
	}
	change := TableSize{int64(rows.Len()), rows.bytes()}
	for i, key := range rows.Keys {
		s.link(t, key, s.at[i], s.prior[i])
		change = change.plus(s.prior[i].freedSize())
	}
	s.add(table, change)
	return nil
}

// Delete implements Store, without a write.
func (s *Segments) Delete(table uint32, keys []uint64, sizes []int32) error {
	if err := checkDelete(keys, sizes); err != nil {
		return err
	}
	if err := s.writable(); err != nil || len(keys) == 0 {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.table(table); t != nil {
		if err := s.priors(t, keys, sizes); err != nil {
			return s.fail("delete", table, err)
		}
		change := TableSize{}
		for i, p := range s.prior {
			if p.exists {
				t.index.remove(mix(keys[i]), p.at)
				s.unlink(t, p)
			}
			change = change.plus(p.freedSize())
		}
		s.add(table, change)
	}
	return nil
}

// prior is the record that a write replaces.
type prior struct {
	exists bool
	at     place
	bytes  int32 // length of its image
}

// freedSize is the change of the table's size when the record is freed.
func (p prior) freedSize() TableSize {
	if !p.exists {
		return TableSize{}
	}
	return TableSize{-1, -int64(p.bytes) - KeyBytes}
}

// priors finds the records of the keys. With sizes it reads records only for shared index entries.
func (s *Segments) priors(t *placed, keys []uint64, sizes []int32) error {
	s.prior = s.prior[:0]
	for i, key := range keys {
		p := prior{}
		s.r.places = t.index.find(mix(key), s.r.places[:0])
		if n := len(s.r.places); n == 1 && len(sizes) > 0 && sizes[i] >= 0 {
			p = prior{true, s.r.places[0], sizes[i]}
		} else if n > 0 {
			row, at, ok, err := s.look(t, &s.r, key)
			if err != nil {
				return err
			}
			p = prior{ok, at, int32(len(row))}
		}
		s.prior = append(s.prior, p)
	}
	return nil
}

// link makes an appended record the current record of its key.
func (s *Segments) link(t *placed, key uint64, at place, p prior) {
	if p.exists {
		t.index.replace(mix(key), p.at, at)
		s.unlink(t, p)
	} else {
		t.index.insert(mix(key), at)
	}
	s.slots[s.slotOf(at)].set(s.unitOf(at))
}

// unlink frees a record.
func (s *Segments) unlink(t *placed, p prior) {
	seg := s.slots[s.slotOf(p.at)]
	seg.clear(s.unitOf(p.at))
	n := recordBytes(int(p.bytes))
	seg.live -= n
	s.live -= n
	if seg.live == 0 && seg != t.active {
		s.release(seg)
	}
}

// Compact implements Store: it cleans all segments that are at least a tenth free, moves segments
// from the end to free positions, and truncates the file.
func (s *Segments) Compact(ctx context.Context) error {
	if err := s.writable(); err != nil {
		return err
	}
	if err := s.compact(ctx); err != nil {
		return fmt.Errorf("store: compacting %s: %w", s.dir, err)
	}
	return nil
}

// Close implements Store. It drops the rows.
func (s *Segments) Close() error {
	if s.closed.Swap(true) {
		return ErrClosed
	}
	for _, t := range *s.placed.Load() {
		t.index.free()
	}
	if err := errors.Join(s.file.Close(), os.Remove(s.path), s.lock.Release()); err != nil {
		return fmt.Errorf("store: closing %s: %w", s.dir, err)
	}
	return nil
}
