// Package folder makes a directory one process's own, for as long as that process
// lives, and makes changes of its entries last.
package folder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrHeld is the error of Take where another process, or another part of this
// one, has the directory.
var ErrHeld = errors.New("held by another process")

// fileName is the file that is locked. It remains when the lock goes: removing it
// would let two processes lock two files of the same name.
const fileName = "LOCK"

// Lock is a directory taken.
type Lock struct{ f *os.File }

// Take locks a directory that exists, at once or not at all. The kernel lets the
// lock go when the process ends, however it ends.
func Take(dir string) (*Lock, error) {
	path := filepath.Join(dir, fileName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Lock{f}, nil
}

// Release lets the directory go, also where a program that is just being started has the file open for a moment.
func (l *Lock) Release() error { return errors.Join(unlock(l.f), l.f.Close()) }

// Sync makes what was created, renamed or removed in a directory survive a power loss.
func Sync(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
