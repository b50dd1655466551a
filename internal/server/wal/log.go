package wal

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/ringo-ml/ringo/internal/crc32c"
	"github.com/ringo-ml/ringo/internal/dirlock"
)

// Log is an open log. All methods are safe for concurrent use.
type Log struct {
	dir  string
	c    Config
	lock *dirlock.Lock

	// file and size belong to the goroutine that set writing.
	file file
	size int64 // end of the last safe group in the segment
	mark *os.File
	end  End // end of the log at Open

	markBuffer [markBytes]byte // used with file

	truncating sync.Mutex // serialises Truncate

	mu       sync.Mutex
	changed  sync.Cond // signals the end of a group or of the log
	segments []segment // the last one is being written
	pending  []byte    // group being gathered
	spare    []byte    // second buffer, nil during a write
	gathered uint32    // records in pending
	opened   uint64    // value of next at Open
	next     uint64    // number of the next record
	safe     uint64
	writing  bool
	closed   bool
	failed   *WriteError // nil while the log accepts records
	stats    Stats
}

// Append adds a record, the concatenation of parts, and returns its position. The record is safe
// once Wait has returned for the record or a later record. Append copies the parts, and blocks only
// while a full buffer waits to be written. Records are in the order of the calls: callers lock if
// order matters. In the steady state Append does not allocate.
func (l *Log) Append(parts ...[]byte) (LSN, error) {
	n, sum := 0, uint32(0)
	for _, p := range parts {
		n += len(p)
		sum = crc32c.Update(sum, p)
	}
	if n > l.c.MaxRecord() {
		return LSN{}, fmt.Errorf("wal: a record of %d bytes: this log takes at most %d (Config.BufferBytes)", n, l.c.MaxRecord())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.closed && l.failed == nil && len(l.pending)+recordHeader+n > l.c.BufferBytes {
		l.advance()
	}
	if l.closed {
		return LSN{}, ErrClosed
	}
	if l.failed != nil {
		return LSN{}, l.failed
	}
	l.pending = appendHeader(l.pending, n, l.gathered, l.next, sum)
	for _, p := range parts {
		l.pending = append(l.pending, p...)
	}
	p := LSN{l.next}
	l.next++
	l.gathered++
	l.stats.Records++
	return p, nil
}

// Wait blocks until the record at p and all before it are safe: at the latest after the current
// group and the group of p. The first waiter writes for all. For a failed record Wait returns a
// *[WriteError], on every call.
func (l *Log) Wait(p LSN) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case p.Number <= l.safe:
			return nil
		case l.failed != nil:
			return l.failed
		case p.Number >= l.next:
			return fmt.Errorf("wal: waiting for record %d, the last one is %d", p.Number, l.next-1)
		}
		l.advance()
	}
}

// advance waits for the current group, or writes the next group. The caller holds l.mu, which
// advance releases during the write.
func (l *Log) advance() {
	if l.writing {
		l.changed.Wait()
		return
	}
	group, last := l.pending, l.next-1
	l.pending, l.spare, l.gathered = l.spare, nil, 0
	l.writing = true
	first := l.safe + 1
	l.mu.Unlock()
	cut, err := l.write(group, first, last)
	l.mu.Lock()
	l.writing = false
	l.spare = group[:0]
	if err != nil {
		// All records after the last safe one are dropped.
		l.failed = &WriteError{Dir: l.dir, Safe: l.safe, Last: l.next - 1, Cut: cut, Err: err}
		l.pending, l.gathered = l.pending[:0], 0
	} else {
		l.safe = last
	}
	l.changed.Broadcast()
}

// Stats returns the log's counters.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Segments, s.First = len(l.segments), l.segments[0].first
	s.Last, s.Safe = l.next-1, l.safe
	return s
}

// Close writes all appended records, closes the log and unlocks its directory. Unwritten records
// are an error. A second Close returns [ErrClosed].
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	l.closed = true
	for l.writing || len(l.pending) > 0 {
		l.advance()
	}
	l.changed.Broadcast()
	var failed error
	if l.failed != nil {
		failed = l.failed
	} else {
		failed = l.setMark(ackState{l.safe, true})
	}
	return errors.Join(failed, l.mark.Close(), l.file.Close(), l.lock.Release())
}
