package wal

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// Open opens the log in a directory, which it makes where there is none, takes the
// directory ([ErrHeld] where another process has it), and cuts off what a crash
// left of the last write. Of the segments it checks the last one; Replay checks the
// others. Damage gives a *[DamageError], acknowledged records that are lost at the end a
// *[LostError], and both leave all as it is.
func Open(dir string, c Config) (*Log, error) {
	fail := func(err error) (*Log, error) { return nil, fmt.Errorf("wal: opening %s: %w", dir, err) }
	if err := c.Validate(); err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fail(err)
	}
	lock, err := dirlock.Take(dir)
	if err != nil {
		return fail(err)
	}
	l := &Log{dir: dir, c: c.withDefaults(), lock: lock}
	if err := l.load(); err != nil {
		return fail(errors.Join(err, lock.Release()))
	}
	l.changed = sync.Cond{L: &l.mu}
	l.pending = make([]byte, 0, l.c.BufferBytes)
	l.spare = make([]byte, 0, l.c.BufferBytes)
	return l, nil
}

// load finds the log's end and makes it ready for more.
func (l *Log) load() error {
	end, all, err := ends(l.dir, l.c.Owner)
	if err != nil {
		return err
	}
	there, err := list(l.dir)
	if err != nil {
		return err
	}
	if len(there) > len(all) {
		if err := os.Remove(there[len(there)-1].path); err != nil {
			return err
		}
	}
	l.end = end
	if len(all) == 0 {
		f, s, err := l.create(1)
		if err != nil {
			return err
		}
		l.start(f, segmentHeader, 1, []segment{s})
	} else {
		f, err := open(end.Path, 0)
		if err != nil {
			return err
		}
		l.start(f, end.Offset, end.Last+1, all)
	}
	if end.Torn > 0 {
		err = l.cut()
	}
	if err == nil {
		err = l.openMark(ackState{safe: l.safe})
	}
	if err != nil {
		return errors.Join(err, l.file.Close())
	}
	return nil
}

// End is where the log ended when it was opened. What had been torn is cut off since.
func (l *Log) End() End { return l.end }

func (l *Log) start(f file, size int64, next uint64, all []segment) {
	l.file, l.size, l.segments = f, size, all
	l.opened, l.next, l.safe = next, next, next-1
}

// withoutUnborn leaves out a last segment whose header a crash kept from being written.
// It has no records, and its number is that which the one before leads to.
func withoutUnborn(all []segment, owner string) ([]segment, error) {
	if len(all) == 0 {
		return nil, nil
	}
	last := all[len(all)-1]
	b, err := readAtMost(last.path, segmentHeader+1)
	if err != nil {
		return nil, err
	}
	if len(b) > segmentHeader {
		return all, nil
	}
	_, err = checkHeader(last.path, b, last.first, owner)
	if err == nil || errors.Is(err, ErrVersion) || errors.Is(err, errOwner) || len(all) == 1 && last.first > 1 {
		return all, nil // a log's only segment is never unborn: the first record's apart
	}
	return all[:len(all)-1], nil
}

func readAtMost(path string, n int) ([]byte, error) {
	f, err := pathname.Open(path)
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	n, err = f.ReadAt(b, 0)
	if n > 0 || n == 0 && err != nil {
		err = nil // a short file
	}
	return b[:n], errors.Join(err, f.Close())
}

// Replay calls do for the records with numbers from first on, or where first is 0
// for all that are kept, in order. It must be called before the first Append.
// Records whose Append was never acknowledged may be among the last. A record's
// bytes are valid during the call only. An error of do ends it. Records that have
// been truncated, or are yet to come, are an error: the caller's checkpoint and
// the log do not belong together. Damage gives a *[DamageError]. It holds one
// segment in memory.
func (l *Log) Replay(first uint64, do func(number uint64, record []byte) error) error {
	l.mu.Lock()
	all, opened, end, closed := l.segments, l.opened, l.next, l.closed
	l.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case end != opened:
		return fmt.Errorf("wal: %s: records were appended since the log was opened: replay comes first", l.dir)
	case first == 0:
		first = all[0].first
	case first < all[0].first || first > end:
		return fmt.Errorf("wal: %s: asked for records from %d on, the log has %d to %d: it does not continue this checkpoint", l.dir, first, all[0].first, end-1)
	}
	var b []byte
	for i, s := range all {
		follows := end
		if i+1 < len(all) {
			follows = all[i+1].first
		}
		if follows <= first && i+1 < len(all) {
			continue
		}
		var err error
		if b, err = readWhole(s.path, b); err != nil {
			return fmt.Errorf("wal: replaying %s: %w", l.dir, err)
		}
		at, next, err := scan(s.path, b, s.first, l.c.Owner, false, func(r record) error {
			if r.number < first {
				return nil
			}
			return do(r.number, r.payload)
		})
		if err == nil && next != follows {
			err = &DamageError{s.path, int64(at), fmt.Sprintf("the segment ends before record %d, record %d follows", next, follows)}
		}
		if err != nil {
			return fmt.Errorf("wal: replaying %s: %w", l.dir, err)
		}
	}
	return nil
}

// readWhole reads a file into b, or into a larger slice.
func readWhole(path string, b []byte) ([]byte, error) {
	f, err := pathname.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		if n := int(info.Size()); n > cap(b) {
			b = make([]byte, n)
		} else {
			b = b[:n]
		}
		_, err = f.ReadAt(b, 0)
	}
	return b, errors.Join(err, f.Close())
}
