//go:build !linux

package launch

import (
	"syscall"
	"time"
)

// processAttributes puts a process into a group of its own, so that it and its
// descendants can be signalled together and do not get the terminal's Ctrl-C.
// Only Linux can tie it to the launcher's life; elsewhere the guard does.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// awaitExit does not wait: only Linux can without reaping.
func awaitExit(int) bool { return false }

// isStopped is unknown: only Linux tells it without forgetting it.
func isStopped(int) bool { return false }

// processorTime is unknown: only Linux tells it of another process in one call.
func processorTime(int) time.Duration { return 0 }
