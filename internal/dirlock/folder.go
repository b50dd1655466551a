// Package dirlock locks directories for the lifetime of a process, and makes directory changes
// durable.
package dirlock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

var (
	// ErrHeld is the error of Take if another process, or other code of this process, has the
	// directory. The error is a *HeldError.
	ErrHeld = errors.New("held by another process")

	// ErrNoLocks is the error of Take on file systems without locks, such as some NFS.
	ErrNoLocks = errors.New("the file system has no locks")
)

// fileName is the locked file. LOCK remains after the unlock: otherwise two processes could lock
// two files of the same name.
const fileName = "LOCK"

// Lock is a locked directory.
type Lock struct{ f *os.File }

// Take locks an existing directory without waiting, and writes the holder to the file
// LOCK. invariant[one-writer]: a directory always has at most one holder until the unlock, because
// the kernel locks the file. The lock ends with the process, independent of the file's contents. A
// network file system may lock only within a host.
func Take(dir string) (*Lock, error) {
	path := filepath.Join(dir, fileName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		if errors.Is(err, ErrHeld) {
			err = &HeldError{path, readHolder(f)}
		} else {
			err = fmt.Errorf("%s: %w", path, err)
		}
		_ = f.Close()
		return nil, err
	}
	if err := thisProcess().write(f); err != nil && !Full(err) { // informative only
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), unlock(f), f.Close())
	}
	return &Lock{f}, nil
}

// Release unlocks the directory, even if a starting child process still has the file open.
func (l *Lock) Release() error {
	return errors.Join(l.f.Truncate(0), unlock(l.f), l.f.Close())
}

// Full reports an error due to a full disk or quota.
func Full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Sync makes created, renamed and removed entries of a directory durable.
func Sync(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(SyncFile(d), d.Close())
}

// maxHolder is the maximum number of bytes to read of a holder.
const maxHolder = 4 << 10

func readHolder(f io.ReaderAt) Holder {
	b, _ := io.ReadAll(io.NewSectionReader(f, 0, maxHolder)) // unreadable means unknown
	return parseHolder(b)
}
