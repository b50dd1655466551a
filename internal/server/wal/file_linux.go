package wal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// datasync syncs data and length, but not times: one write less than fsync.
func datasync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
