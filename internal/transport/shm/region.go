package shm

import (
	"os"
	"slices"
	"unsafe"

	"github.com/ringo-ml/ringo/transport"
)

// A region is Control, then the arenas in the order of the host's ranks, aligned to largePage.
const (
	largePage = 2 << 20
	// defaultSpan limits all arenas of a host together if no size is configured: a process has 128
	// TiB of addresses on the smallest 64-bit machines.
	defaultSpan = 16 << 40
)

func stride(arena int64) int64 { return (arena + largePage - 1) &^ (largePage - 1) }

func regionBytes(ranks int, arena int64) int64 {
	return int64(ranks) * (transport.ControlBytes + stride(arena))
}

// region is this process's mapping of a host's memory.
type region struct {
	base  unsafe.Pointer
	ranks int
	arena int64
}

// discard unmaps r unless nil or already discarded.
func (r *region) discard() {
	if r != nil && r.base != nil {
		unmap(r.base, uintptr(regionBytes(r.ranks, r.arena)))
		r.base = nil
	}
}

// offset returns the start of the i-th rank's arena.
func (r *region) offset(i int) int64 {
	return int64(r.ranks)*transport.ControlBytes + int64(i)*stride(r.arena)
}

// parts returns the i-th rank's part of Control, and its arena.
func (r *region) parts(i int) [][]byte {
	return [][]byte{
		unsafe.Slice((*byte)(unsafe.Add(r.base, i*transport.ControlBytes)), transport.ControlBytes),
		unsafe.Slice((*byte)(unsafe.Add(r.base, r.offset(i))), r.arena),
	}
}

// windows transfers r to a SharedMemory.
func (r *region) windows(ranks []int, me, cores int) *transport.SharedMemory {
	w := &transport.SharedMemory{
		Ranks: ranks, Index: slices.Index(ranks, me), Cores: cores,
		Control: unsafe.Slice((*byte)(r.base), r.ranks*transport.ControlBytes),
	}
	for i := range ranks {
		w.Arenas = append(w.Arenas, unsafe.Slice((*byte)(unsafe.Add(r.base, r.offset(i))), r.arena))
	}
	w.Free = func(used int) { r.free(w.Index, used) }
	w.Hold()
	return w
}

// free releases the memory, except for allocations of this rank's arena, which become private.
func (r *region) free(own, used int) {
	from, total := uintptr(r.offset(own)), uintptr(regionBytes(r.ranks, r.arena))
	page := os.Getpagesize()
	used = (used + page - 1) / page * page
	if used == 0 || !replace(unsafe.Add(r.base, from), uintptr(used)) {
		r.discard()
		return
	}
	unmap(r.base, from)
	if end := from + uintptr(used); end < total {
		unmap(unsafe.Add(r.base, end), total-end)
	}
	r.base = nil
}
