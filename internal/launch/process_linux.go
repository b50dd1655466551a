package launch

import (
	"errors"
	"syscall"
	"time"

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

// isStopped says whether a child of this process is stopped by a signal. The system keeps that to be asked for again.
func isStopped(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0 // 0: there is nothing to tell
}

// processorTime is how much of it all threads of a process have used so far, exact to what the scheduler counts; 0 of
// one that is not there. What the process has started is not counted.
func processorTime(pid int) time.Duration {
	var used unix.Timespec
	if unix.ClockGettime(^int32(pid)<<3|schedClock, &used) != nil {
		return 0
	}
	return time.Duration(used.Nano())
}

// schedClock is CPUCLOCK_SCHED, of the clocks that the kernel has for each process, see clock_getcpuclockid(3).
const schedClock = 2
