package launch

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// processAttributes puts a process into a group of its own, so that it and its
// descendants can be signalled together and do not get the terminal's Ctrl-C.
// The kernel kills it when the launcher's thread that started it ends: see
// onOneThread.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns when the process has ended, and leaves it to be reaped. It
// returns false if it could not wait.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}
