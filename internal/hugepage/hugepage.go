// Package hugepage requests large pages for large arrays. Address tables then have hundreds of
// times fewer entries, which speeds up reads across a matrix's rows, scattered row lookups and,
// most of all, virtual machines, with two translations per address: a language model's steps take a
// few percent less.
package hugepage

import "unsafe"

// least is the least useful number of bytes: smaller arrays may hold no whole large page of 2 MiB.
const least = 4 << 20

// Advise requests large pages for x, ahead of the first use of x. Small arrays and systems without
// large pages are left unchanged.
func Advise(x []float32) {
	if 4*len(x) >= least {
		advise(pages(x))
	}
}

// Collapse is Advise for shared memory, which systems rarely put in large pages: Collapse makes
// large pages of x immediately, in about a second per GiB. x is zero. As with Advise, small arrays
// and other systems are left unchanged.
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

// Floats returns n zeros aligned to 64 bytes, a cache line and the widest vector; large arrays are
// in large pages. The alignment lasts, because Go never moves memory.
func Floats(n int) []float32 {
	const line = 64
	buf := make([]float32, n+line/4)
	Advise(buf)
	past := uintptr(unsafe.Pointer(unsafe.SliceData(buf))) % line
	skip := int((line - past) % line / 4)
	return buf[skip : skip+n : skip+n]
}

// inner is the range of whole small pages, of at most 64 KiB on any system, in size bytes at an
// address.
func inner(address uintptr, size int) (lo, hi int) {
	const page = 64 << 10
	lo = int(-address % page)
	hi = size - int((address+uintptr(size))%page)
	return lo, max(lo, hi)
}
