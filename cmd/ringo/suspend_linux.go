package main

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// action is the kernel's struct sigaction on amd64 and arm64, whose zero value is a signal's default action.
type action struct{ handler, flags, restorer, mask uint64 }

// suspendSelf suspends this process as SIGTSTP does one that does not catch it, which leaves it to the
// system whether somebody could have it go on; signal.Reset leaves Go's handler in place. restore brings that back.
func suspendSelf() (restore func()) {
	var was action
	set := func(act, old *action) {
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGTSTP), uintptr(unsafe.Pointer(act)), uintptr(unsafe.Pointer(old)), unsafe.Sizeof(was.mask), 0, 0)
	}
	set(&action{}, &was)
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGTSTP) // it has a number of its own
	return func() { set(&was, nil) }
}
