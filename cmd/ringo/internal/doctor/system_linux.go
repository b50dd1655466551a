package doctor

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// sharing tries to make memory that processes can share.
func sharing() error {
	fd, err := unix.MemfdCreate("ringo-doctor", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	return unix.Close(fd)
}

// openFiles is how many files a process may open, once it has asked for all it may have, as Go's programs do.
func openFiles() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return limit.Max
}
