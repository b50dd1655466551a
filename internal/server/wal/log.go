package wal

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/ringo-ml/ringo/internal/crc32c"
	"github.com/ringo-ml/ringo/internal/dirlock"
)

// Log is an open log. All methods may be called at once.
type Log struct {
	dir  string
	c    Config
	lock *dirlock.Lock

	// Who writes a group owns file and size while writing is set; nobody else
	// touches them.
	file file
	size int64 // of the segment, up to the last group that is safe
	mark *os.File
	end  End // when the log was opened

	markBuffer [markBytes]byte // whoever has file

	truncating sync.Mutex // one Truncate at a time

	mu       sync.Mutex
	changed  sync.Cond // a group has ended, or the log has
	segments []segment // the last one is written to
	pending  []byte    // the group that gathers
	spare    []byte    // the other buffer, nil while it is written
	gathered uint32    // records in pending
	opened   uint64    // the next record's number when the log was opened
	next     uint64    // number of the next record
	safe     uint64
	writing  bool
	closed   bool
	failed   *WriteError // nil while the log takes records
	runs     []run       // those that failed: one more after each Resume
	stats    Stats
}

// run is what became of the records between two failures.
type run struct {
	safe uint64
	err  *WriteError
}

// Append adds a record, the parts one after the other, and returns its position.
// It is safe once Wait has answered for it, or for a later one. Append copies the
// parts. It waits only while a buffer's worth of records waits to be written. The
// order of records is that of the calls: who needs another one holds a lock. In
// the steady state it allocates nothing.
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
	p := LSN{l.next, len(l.runs)}
	l.next++
	l.gathered++
	l.stats.Records++
	return p, nil
}

// Wait returns when the record at p and all before it are safe, at the latest
// after the group now on its way and the one that p is in. The first to wait
// writes for all. A record that is not safe and never will be gives a
// *[WriteError]; it may be asked for as often as one likes.
func (l *Log) Wait(p LSN) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case p.run < len(l.runs) && p.Number <= l.runs[p.run].safe, p.run == len(l.runs) && p.Number <= l.safe:
			return nil
		case p.run < len(l.runs):
			return l.runs[p.run].err
		case p.Number >= l.next:
			return fmt.Errorf("wal: waiting for record %d, the last one is %d", p.Number, l.next-1)
		}
		l.advance()
	}
}

// advance brings the log to the end of a group: another one's or its own. l.mu
// is held, and let go meanwhile.
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
	resumable, err := l.write(group, first, last)
	l.mu.Lock()
	l.writing = false
	l.spare = group[:0]
	if err != nil {
		l.fail(resumable, err)
	} else {
		l.safe = last
	}
	l.changed.Broadcast()
}

// fail ends a run: no record after the last safe one is kept.
func (l *Log) fail(resumable bool, err error) {
	l.failed = &WriteError{Dir: l.dir, Safe: l.safe, Last: l.next - 1, Resumable: resumable, Err: err}
	l.runs = append(l.runs, run{l.safe, l.failed})
	l.pending, l.gathered = l.pending[:0], 0
}

// Resume lets a log go on that a full disk had stopped, after there is room
// again: with the number after the last safe record. Records that had been
// appended after that one are gone, and Wait says so. A log that failed otherwise
// gives its error. Resume of a log that has not failed does nothing.
func (l *Log) Resume() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return ErrClosed
	case l.failed == nil:
		return nil
	case !l.failed.Resumable:
		return l.failed
	}
	l.failed, l.next = nil, l.safe+1
	return nil
}

// Stats returns what the log has done.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Segments, s.First = len(l.segments), l.segments[0].first
	s.Last, s.Safe = l.next-1, l.safe
	return s
}

// Close writes what has been appended, closes the log and lets its directory go.
// Records that could not be written are an error. A second Close gives
// [ErrClosed].
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
