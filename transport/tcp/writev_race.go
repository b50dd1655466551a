//go:build race && linux

package tcp

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// writev is writev(2), told to the race detector before it happens. [unix.Writev]
// tells it afterwards, and by then the answer to what was sent may have been received
// into the same memory: an order that only the peer knows, and no race.
func writev(fd int, v [][]byte) (int, error) {
	var vec [3]unix.Iovec
	n := 0
	for _, p := range v {
		if len(p) > 0 {
			runtime.RaceReadRange(unsafe.Pointer(&p[0]), len(p))
			vec[n].Base = &p[0]
			vec[n].SetLen(len(p))
			n++
		}
	}
	sent, _, errno := unix.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&vec)), uintptr(n))
	if errno != 0 {
		return 0, errno
	}
	return int(sent), nil
}
