package wal

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/internal/folder"
)

var (
	// ErrHeld is the error of Open where another process has the log.
	ErrHeld = folder.ErrHeld
	// ErrVersion is the error of a log that another version of the format wrote.
	ErrVersion = errors.New("another version of the format")
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
