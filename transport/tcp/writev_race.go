//go:build race && linux

package tcp

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// order stands, by its address, for the order of what is sent and what is received after it. The answer to a message
// may be received into the memory that was sent while the sender has not come to run again: an order that
// only the peer knows, and no race.
var order byte

// sends comes before a message is given to the system, after it was read.
func sends() { runtime.RaceReleaseMerge(unsafe.Pointer(&order)) }

// received comes after a message has come from the system, before it is written anywhere.
func received() { runtime.RaceAcquire(unsafe.Pointer(&order)) }

// writev is writev(2), told to the race detector before it happens, where [unix.Writev]
// tells it afterwards.
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
	sends()
	sent, _, errno := unix.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&vec)), uintptr(n))
	if errno != 0 {
		return 0, errno
	}
	return int(sent), nil
}

// readv is readv(2), told to the race detector when what it has come after is known, where [unix.Readv] tells it
// before.
func readv(fd int, v [][]byte) (int, error) {
	var vec [3]unix.Iovec
	n := 0
	for _, p := range v {
		if len(p) > 0 {
			vec[n].Base = &p[0]
			vec[n].SetLen(len(p))
			n++
		}
	}
	got, _, errno := unix.Syscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&vec)), uintptr(n))
	if errno != 0 {
		return 0, errno
	}
	received()
	for i, left := 0, int(got); left > 0; i++ {
		mine := min(left, int(vec[i].Len))
		runtime.RaceWriteRange(unsafe.Pointer(vec[i].Base), mine)
		left -= mine
	}
	return int(got), nil
}
