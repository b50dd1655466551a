package wal

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// Open opens the log in a directory, created if missing, locks the directory (dirlock.ErrHeld if
// another process has it), and cuts off a torn write. Open checks the last segment, Replay the
// earlier segments. Damage returns a *[DamageError], a loss of acknowledged records at the end a
// *[LostError], both without a change.
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

// load finds the log's end and prepares the log for writes.
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

// End returns the end of the log at Open. Torn bytes were cut off.
func (l *Log) End() End { return l.end }

func (l *Log) start(f file, size int64, next uint64, all []segment) {
	l.file, l.size, l.segments = f, size, all
	l.opened, l.next, l.safe = next, next, next-1
}

// withoutUnborn excludes a last segment without a complete header, after a crash. Such a segment
// has no records, and a number that follows from the previous segment.
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
		return all, nil // a damaged single segment that is not the log's first is not excluded
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
		err = nil // a short file is no error
	}
	return b[:n], errors.Join(err, f.Close())
}

// Replay calls do for the records from number first on, or for all if first is 0, in order. It must
// precede the first Append. Unacknowledged records may be among the last. A record's bytes are
// valid during the call only. An error of do ends Replay. Truncated or future records are an error:
// the caller's checkpoint does not match the log. Damage returns a *[DamageError]. Replay holds one
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
