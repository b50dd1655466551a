package tcp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reads and writes never wait, so the Go scheduler is not told of them. Told, it takes the processor of a goroutine that
// copies for longer than 20 us for idle, gives it to another thread and has the two meet again afterwards; with more ranks
// than cores large sums took up to twice as long. In return nothing else runs on that processor during a call, nor can the
// garbage collector stop it, which is why calls are bounded.

// maxCall bounds what one call copies: about 100 us where memory is slow, and a segment of a collective with its header,
// since shorter calls make the same bytes take longer.
const maxCall = 512<<10 + 4<<10

// vector is up to three slices, of maxCall bytes together.
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

// each calls f with the beginning of each slice, as far as n bytes go.
func (l *vector) each(n int, f func(p *byte, n int)) {
	for _, e := range l.vec[:l.n] {
		if mine := min(n, int(e.Len)); mine > 0 {
			f(e.Base, mine)
			n -= mine
		}
	}
}

// writev is writev(2) of up to maxCall bytes.
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

// readv is readv(2) likewise.
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
