package launch

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// processAttributes puts a process into a separate process group: the launcher signals the process
// together with its descendants, and the terminal's Ctrl-C does not reach them. The kernel kills
// the process when the launcher's starting thread ends: see onOneThread.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit waits for the process's end without reaping, and returns false if that failed.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// isStopped reports whether a signal has stopped a child, without consuming the kernel's report.
func isStopped(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0 // 0: no state to report
}

// processorTime returns the processor time of all threads of a process, as exact as the scheduler's
// accounting; 0 for a missing process. Children are not included.
func processorTime(pid int) time.Duration {
	var used unix.Timespec
	if unix.ClockGettime(^int32(pid)<<3|schedClock, &used) != nil {
		return 0
	}
	return time.Duration(used.Nano())
}

// schedClock is CPUCLOCK_SCHED among the kernel's clocks of a process: see clock_getcpuclockid(3).
const schedClock = 2
