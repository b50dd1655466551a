package dirlock

import (
	"errors"
	"syscall"
)

// SyncFile syncs a file to disk. File systems and devices without this operation (some of FUSE,
// /dev/stdout) return EINVAL or ENOTSUP, which is no error: the data are as safe as possible.
func SyncFile(f interface{ Sync() error }) error { return unlessUnsupported(f.Sync()) }

func unlessUnsupported(err error) error {
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}
