package wal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/dirlock"
)

type segment struct {
	first uint64 // number of the first record
	path  string
}

const (
	namePrefix = "segment-"
	nameDigits = 20 // digits of the largest uint64: names sort as numbers
)

func segmentPath(dir string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%s%0*d", namePrefix, nameDigits, first))
}

// list returns a directory's segments in order, ignoring other files.
func list(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []segment
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), namePrefix)
		first, err := strconv.ParseUint(digits, 10, 64)
		path := filepath.Join(dir, e.Name())
		if ok && err == nil && first > 0 && path == segmentPath(dir, first) && !e.IsDir() {
			out = append(out, segment{first, path})
		}
	}
	slices.SortFunc(out, func(a, b segment) int { return strings.Compare(a.path, b.path) })
	return out, nil
}

func (l *Log) create(first uint64) (f file, s segment, err error) {
	s = segment{first, segmentPath(l.dir, first)}
	if f, err = l.c.create(s.path); err != nil {
		return nil, s, err
	}
	_, err = f.WriteAt(appendSegmentHeader(nil, first, l.c.Sync, l.c.Owner), 0)
	if err == nil && l.c.Sync {
		if err = f.Sync(); err == nil {
			err = dirlock.Sync(l.dir)
		}
	}
	if err != nil {
		return nil, s, errors.Join(err, f.Close(), os.Remove(s.path))
	}
	return f, s, nil
}

// write writes a group with the given first and last record. The caller has set l.writing.
// unchanged reports that the disk was full and the log is as before.
func (l *Log) write(group []byte, first, last uint64) (unchanged bool, err error) {
	if l.size > segmentHeader && l.size+int64(len(group)) > l.c.SegmentBytes {
		err := l.rotate(first)
		if err != nil && !(isCrowded(err) && l.size+int64(len(group)) <= maxSegmentBytes) {
			return isFull(err), err
		} // otherwise this segment grows until a descriptor is free
	}
	if _, err := l.file.WriteAt(group, l.size); err != nil {
		return l.giveUp(err)
	}
	if l.c.Sync {
		// The system may drop pages after a failed write and report success for the next sync, so
		// that the failure is permanent.
		if err := l.file.Sync(); err != nil {
			return false, err
		}
	}
	if err := l.setMark(ackState{safe: last}); err != nil { // a write in place may need space
		return l.giveUp(err)
	}
	l.size += int64(len(group))
	l.count(len(group))
	return false, nil
}

// giveUp removes a failed group.
func (l *Log) giveUp(err error) (unchanged bool, _ error) {
	if !isFull(err) {
		return false, err
	}
	cut := l.cut()
	return cut == nil, errors.Join(err, cut)
}

// cut truncates the segment to its safe size.
func (l *Log) cut() error {
	err := l.file.Truncate(l.size)
	if err == nil && l.c.Sync {
		err = l.file.Sync()
	}
	return err
}

func (l *Log) rotate(first uint64) error {
	f, s, err := l.create(first)
	if err != nil {
		return err
	}
	if err := l.file.Close(); err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.size = f, segmentHeader
	l.mu.Lock()
	l.segments = append(l.segments, s)
	l.mu.Unlock()
	return nil
}

func (l *Log) count(bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Writes++
	l.stats.Bytes += int64(bytes)
	if l.c.Sync {
		l.stats.Syncs++
	}
}

// Truncate removes the segments with only records below first, such as those included in a
// checkpoint: the oldest first, and never the current segment. It is safe for concurrent use.
func (l *Log) Truncate(first uint64) error {
	l.truncating.Lock()
	defer l.truncating.Unlock()
	removed := false
	for {
		l.mu.Lock()
		more := !l.closed && len(l.segments) > 1 && l.segments[1].first <= first
		path := l.segments[0].path
		l.mu.Unlock()
		if !more {
			break
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("wal: truncating to record %d: %w", first, err)
		}
		l.mu.Lock()
		l.segments = slices.Delete(l.segments, 0, 1)
		l.mu.Unlock()
		removed = true
	}
	if removed && l.c.Sync {
		if err := dirlock.Sync(l.dir); err != nil {
			return fmt.Errorf("wal: truncating to record %d: %w", first, err)
		}
	}
	return nil
}
