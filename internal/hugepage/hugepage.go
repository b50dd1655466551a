// Package hugepage asks the system to lay large arrays out in large pages.
// Tables of addresses then have hundreds of times fewer entries, which matters
// where a matrix is read across its rows, where rows of a table are looked up
// here and there, and most in virtual machines, whose addresses are translated
// twice: steps of a language model take some percent less.
package hugepage

import "unsafe"

// least is the number of bytes from which it pays: below, an array may hold no
// whole large page of 2 MiB.
const least = 4 << 20

// Advise asks for large pages under x, whose memory should not have been used
// yet. It does nothing when x is small or the system knows of no such thing.
func Advise(x []float32) {
	if 4*len(x) >= least {
		advise(pages(x))
	}
}

// Collapse is Advise for memory that processes share, for which systems rarely give large
// pages on their own: it makes those of x at once, about a second per GiB. x is zero. It
// does nothing where Advise does nothing, and where the system cannot.
func Collapse(x []float32) {
	if 4*len(x) >= least {
		collapse(pages(x))
	}
}

// pages are the whole small pages of x.
func pages(x []float32) []byte {
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
	lo, hi := inner(uintptr(unsafe.Pointer(unsafe.SliceData(x))), len(bytes))
	return bytes[lo:hi]
}

// Floats returns n zeros whose first lies at a multiple of 64 bytes, a cache line
// and the widest vector; many of them lie in large pages. Go's garbage collector
// does not move memory.
func Floats(n int) []float32 {
	const line = 64
	buf := make([]float32, n+line/4)
	Advise(buf)
	past := uintptr(unsafe.Pointer(unsafe.SliceData(buf))) % line
	skip := int((line - past) % line / 4)
	return buf[skip : skip+n : skip+n]
}

// inner is the part of size bytes at an address that consists of whole small
// pages: 64 KiB at most, on any system.
func inner(address uintptr, size int) (lo, hi int) {
	const page = 64 << 10
	lo = int(-address % page)
	hi = size - int((address+uintptr(size))%page)
	return lo, max(lo, hi)
}
