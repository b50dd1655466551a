//go:build !linux

package launch

import (
	"syscall"
	"time"
)

// processAttributes puts a process into a separate process group: the launcher signals the process
// together with its descendants, and the terminal's Ctrl-C does not reach them. Only Linux can tie
// a child to the launcher's lifetime; elsewhere the guard process kills the children.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// awaitExit returns false: only Linux can wait without reaping.
func awaitExit(int) bool { return false }

// isStopped returns false: only Linux reports the state without consuming the report.
func isStopped(int) bool { return false }

// processorTime returns 0: only Linux has a single call for another process.
func processorTime(int) time.Duration { return 0 }
