package tcp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reads and writes never block, so these calls bypass the Go scheduler. With the scheduler, a
// goroutine that copies for longer than 20 us counts as blocked: its processor moves to another
// thread, and both must synchronize afterwards. With more ranks than cores large sums took up to
// twice as long. The price: no other goroutine runs on the processor during a call, and the garbage
// collector cannot interrupt the call. Calls are therefore limited.

// maxCall limits the bytes copied by one call: about 100 us with slow memory. maxCall holds a
// segment of a collective with its header, since more calls take longer for the same bytes.
const maxCall = 512<<10 + 4<<10

// vector is up to three slices, of at most maxCall bytes together.
type vector struct {
	vec [3]unix.Iovec
	n   int
}

func (l *vector) of(v [][]byte) {
	for _, p := range v {
		if p = p[:min(len(p), maxCall-l.bytes())]; len(p) > 0 {
			l.vec[l.n].Base = &p[0]
			l.vec[l.n].SetLen(len(p))
			l.n++
		}
	}
}

func (l *vector) bytes() (n int) {
	for _, e := range l.vec[:l.n] {
		n += int(e.Len)
	}
	return n
}

// each calls f with the beginning of each slice, for n bytes in total.
func (l *vector) each(n int, f func(p *byte, n int)) {
	for _, e := range l.vec[:l.n] {
		if mine := min(n, int(e.Len)); mine > 0 {
			f(e.Base, mine)
			n -= mine
		}
	}
}

func writev(fd int, v [][]byte) (int, error) {
	var l vector
	l.of(v)
	l.each(maxCall, reads)
	sends()
	n, _, errno := unix.RawSyscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&l.vec)), uintptr(l.n))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func readv(fd int, v [][]byte) (int, error) {
	var l vector
	l.of(v)
	n, _, errno := unix.RawSyscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&l.vec)), uintptr(l.n))
	if errno != 0 {
		return 0, errno
	}
	received()
	l.each(int(n), writes)
	return int(n), nil
}
