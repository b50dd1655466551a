package shm

import (
	"os"
	"slices"
	"unsafe"

	"github.com/ringo-ml/ringo/transport"
)

// A region is Control, then the arenas in the order of the host's ranks, each
// beginning at a multiple of largePage.
const (
	largePage = 2 << 20
	// defaultSpan bounds all arenas of a host together where nobody gave a size:
	// a process has 128 TiB of addresses on the smallest of 64-bit machines.
	defaultSpan = 16 << 40
)

func stride(arena int64) int64 { return (arena + largePage - 1) &^ (largePage - 1) }

// regionBytes is the length of the region of so many ranks.
func regionBytes(ranks int, arena int64) int64 {
	return int64(ranks) * (transport.ControlBytes + stride(arena))
}

// region is the memory of one host, as mapped here.
type region struct {
	base  unsafe.Pointer
	ranks int
	arena int64
}

// discard unmaps all of r, which may be nil or discarded already.
func (r *region) discard() {
	if r != nil && r.base != nil {
		unmap(r.base, uintptr(regionBytes(r.ranks, r.arena)))
		r.base = nil
	}
}

// offset is where the arena of the i-th rank begins.
func (r *region) offset(i int) int64 {
	return int64(r.ranks)*transport.ControlBytes + int64(i)*stride(r.arena)
}

// parts are what the i-th rank has of the memory: of Control, and its arena.
func (r *region) parts(i int) [][]byte {
	return [][]byte{
		unsafe.Slice((*byte)(unsafe.Add(r.base, i*transport.ControlBytes)), transport.ControlBytes),
		unsafe.Slice((*byte)(unsafe.Add(r.base, r.offset(i))), r.arena),
	}
}

// windows describes r, which belongs to them from now on.
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

// free gives the memory back. What was given out of this rank's own arena stays
// mapped, as memory of this process alone: its owner may touch it still.
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
