package wal

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/internal/dirlock"
)

var (
	// ErrHeld is the error of Open where another process has the log.
	ErrHeld = dirlock.ErrHeld
	// ErrVersion is the error of a log that another version of the format wrote.
	ErrVersion = errors.New("another version of the format")
	// errOwner is the error of a file that another owner's log wrote.
	errOwner = errors.New("of the log of")
	// ErrClosed is the error of a log that has been closed.
	ErrClosed = errors.New("wal: the log is closed")
)

// DamageError says where a log is damaged.
type DamageError struct {
	Path   string // the segment's file
	Offset int64  // in the file, in bytes
	Fault  string
}

// Error names file and offset.
func (e *DamageError) Error() string {
	return fmt.Sprintf("%s is damaged at offset %d: %s", e.Path, e.Offset, e.Fault)
}

// LostError says that a log has lost records at its end that it had acknowledged.
type LostError struct {
	Dir string
	End End // Acknowledged is above Last
	// Headless is the last segment's file where it has no whole header, and so no records: "" where it has one.
	Headless string
}

// Error says what is lost, why that is known, and what to do.
func (e *LostError) Error() string {
	at := "no segment is left"
	if e.End.Path != "" {
		at = fmt.Sprintf("it ends with record %d, at byte %d of %s", e.End.Last, e.End.Offset, e.End.Path)
	}
	if e.Headless != "" {
		at += fmt.Sprintf(" (%s has no whole header)", e.Headless)
	}
	return fmt.Sprintf("the log has lost its end: %s, but records up to %d had been acknowledged: the file was cut, or the host lost power while the log was not forced to the disk; "+
		"bring it back from a copy, or remove %s to go on without records %d to %[2]d", at, e.End.Acknowledged, markPath(e.Dir), e.End.Last+1)
}

// WriteError is why a log takes no more records. Records up to Safe survive;
// those from Safe+1 to Last were never acknowledged.
type WriteError struct {
	Dir        string
	Safe, Last uint64
	// Resumable says that the disk was full and that what was written of the
	// failed group is cut off: records after Safe are not kept, and the log goes
	// on with Safe+1 after Resume. Otherwise it has failed for good, and those
	// records may or may not be there when it is opened again.
	Resumable bool
	Err       error
}

// Error says what is safe, what is not, and what to do.
func (e *WriteError) Error() string {
	head := fmt.Sprintf("wal: %s: writing records %d to %d: %v; records up to %d are safe", e.Dir, e.Safe+1, e.Last, e.Err, e.Safe)
	if e.Resumable {
		return head + ", later ones are not kept: make room on its disk, then start the server or the job again, which goes on from there"
	}
	return head + ", later ones may not be: check the disk, then open the log again"
}

// Unwrap is the system's error.
func (e *WriteError) Unwrap() error { return e.Err }
