package doctor

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// sharing checks that processes can share memory.
func sharing() error {
	fd, err := unix.MemfdCreate("ringo-doctor", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	return unix.Close(fd)
}

// openFiles returns the hard limit of open files, because Go programs raise the soft limit.
func openFiles() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return limit.Max
}
