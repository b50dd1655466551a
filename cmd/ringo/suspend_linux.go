package main

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// action is the kernel's struct sigaction on amd64 and arm64. The zero value is the default action.
type action struct{ handler, flags, restorer, mask uint64 }

// suspendSelf suspends this process by the default action of SIGTSTP: the system ignores the signal
// if no shell could resume the process. signal.Reset would leave Go's handler installed. restore
// reinstalls the handler.
func suspendSelf() (restore func()) {
	var was action
	set := func(act, old *action) {
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGTSTP), uintptr(unsafe.Pointer(act)), uintptr(unsafe.Pointer(old)), unsafe.Sizeof(was.mask), 0, 0)
	}
	set(&action{}, &was)
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGTSTP) // this process exists
	return func() { set(&was, nil) }
}
