package wal

import (
	"errors"
	"fmt"
)

var (
	// ErrVersion is the error of a log in another version of the format.
	ErrVersion = errors.New("another version of the format")
	// errOwner is the error of a file from another owner's log.
	errOwner = errors.New("of the log of")
	// ErrClosed is the error of a closed log.
	ErrClosed = errors.New("wal: the log is closed")
)

// DamageError reports damage of a log.
type DamageError struct {
	Path   string // segment file
	Offset int64  // offset in the file in bytes
	Fault  string
}

// Error names file and offset.
func (e *DamageError) Error() string {
	return fmt.Sprintf("%s is damaged at offset %d: %s", e.Path, e.Offset, e.Fault)
}

// LostError reports that a log has lost acknowledged records at its end.
type LostError struct {
	Dir string
	End End // Acknowledged is above Last
	// Headless is the last segment's file if its header is incomplete, with no records; else "".
	Headless string
}

// Error states the loss, the evidence and the remedy.
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

// WriteError is the error of a log that accepts no more records. Records up to Safe survive;
// records from Safe+1 to Last were never acknowledged.
type WriteError struct {
	Dir        string
	Safe, Last uint64
	// Cut reports that the disk was full and the failed group was cut off: the reopened log ends
	// with Safe. Otherwise it may or may not have later records.
	Cut bool
	Err error
}

// Error states the safe and unsafe records, and the remedy.
func (e *WriteError) Error() string {
	head := fmt.Sprintf("wal: %s: writing records %d to %d: %v; records up to %d are safe", e.Dir, e.Safe+1, e.Last, e.Err, e.Safe)
	if e.Cut {
		return head + ", later ones are not kept: make room on its disk, then start the server or the job again, which goes on from there"
	}
	return head + ", later ones may not be: check the disk, then open the log again"
}

// Unwrap returns the system's error.
func (e *WriteError) Unwrap() error { return e.Err }
