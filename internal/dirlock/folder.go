// Package dirlock makes a directory one process's own, for as long as that process
// lives, and makes changes of its entries last.
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
	// ErrHeld is the error of Take where another process, or another part of this
	// one, has the directory. The error is a *HeldError.
	ErrHeld = errors.New("held by another process")

	// ErrNoLocks is the error of Take where the file system has no locks, as some network
	// file systems do not.
	ErrNoLocks = errors.New("the file system has no locks")
)

// fileName is the file that is locked. It remains when the lock goes: removing it
// would let two processes lock two files of the same name.
const fileName = "LOCK"

// Lock is a directory taken.
type Lock struct{ f *os.File }

// Take locks a directory that exists, at once or not at all, and says in the file LOCK
// who has it. invariant[one-writer]: nobody else has it until the lock goes. The kernel lets the lock go when the process ends, however it ends: what the
// file says then has no effect. A network file system may keep processes of one host apart
// alone.
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
	if err := thisProcess().write(f); err != nil && !Full(err) { // it only informs
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), unlock(f), f.Close())
	}
	return &Lock{f}, nil
}

// Release lets the directory go, also where a program that is just being started has the file open for a moment.
func (l *Lock) Release() error {
	return errors.Join(l.f.Truncate(0), unlock(l.f), l.f.Close())
}

// Full tells whether room on the disk would mend a fault.
func Full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Sync makes what was created, renamed or removed in a directory survive a power loss.
func Sync(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(SyncFile(d), d.Close())
}

// maxHolder bounds what is read of who holds a directory.
const maxHolder = 4 << 10

func readHolder(f io.ReaderAt) Holder {
	b, _ := io.ReadAll(io.NewSectionReader(f, 0, maxHolder)) // what cannot be read is not known
	return parseHolder(b)
}
