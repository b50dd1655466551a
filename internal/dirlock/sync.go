package dirlock

import (
	"errors"
	"syscall"
)

// SyncFile has the system write a file to its disk. File systems and devices that have no such
// operation (some of FUSE, /dev/stdout) return EINVAL or ENOTSUP, which is no error: their data are
// as safe as they can be.
func SyncFile(f interface{ Sync() error }) error { return unlessUnsupported(f.Sync()) }

func unlessUnsupported(err error) error {
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}
