package snapshot

import (
	"os"

	"golang.org/x/sys/unix"
)

// inherited returns a copy of an inherited descriptor, for this process alone; nil if a wrapper
// program has closed the descriptor, or it is none of such memory.
func inherited(fd int) *os.File {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil {
		return nil
	}
	unix.CloseOnExec(fd)
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(own), "snapshot")
}
