package transport

import (
	"sync/atomic"
	"unsafe"
)

// SharedMemory is memory shared by some ranks of a mesh, normally the ranks of one host. Ranks
// exchange data by stores and loads, without messages. Untouched pages use no memory.
type SharedMemory struct {
	// Ranks are the mesh ranks that share the memory, ascending; this rank is Ranks[Index].
	Ranks []int
	Index int
	// Control is one memory that all ranks map, initially zero and page-aligned, ControlBytes per
	// rank. It has the flags and staging buffers of collective operations.
	Control []byte
	// Arenas[i] is the memory of rank Ranks[i] for operands, as mapped by this process. All arenas
	// have the same length, are page-aligned and initially zero.
	Arenas [][]byte
	// Cores is the number of processors that all ranks share: if these are fewer than ranks, a
	// waiting rank yields immediately.
	Cores int
	// OneProcess reports whether the ranks are goroutines of one process.
	OneProcess bool
	// Free, if set, is called once, after the last Drop, with the number of bytes that Alloc has
	// returned from this rank's arena.
	Free func(used int)
	// BytesCarried is the number of operand bytes that this rank has exchanged through the shared
	// memory instead of messages.
	BytesCarried atomic.Int64

	used    int // allocated bytes of this rank's arena
	holders atomic.Int32
}

// ControlBytes is the length of SharedMemory.Control per rank.
const ControlBytes = 34 << 20

// arenaAlign is Alloc's alignment: a page, so that no page is used by ranks on different sockets.
const arenaAlign = 4096

// SharedMemoryProvider is a mesh with optional shared memory.
type SharedMemoryProvider interface {
	// SharedMemory returns this rank's shared memory, or nil.
	SharedMemory() *SharedMemory
}

// SharedMemoryOf returns the shared memory of m, or nil.
func SharedMemoryOf(m Mesh) *SharedMemory {
	if w, ok := m.(SharedMemoryProvider); ok {
		return w.SharedMemory()
	}
	return nil
}

// Hold prevents the release of the memory until a Drop. The mesh holds the memory until Close, and
// a group of ranks until the end of its last operation.
func (w *SharedMemory) Hold() { w.holders.Add(1) }

// Drop ends a Hold. After the last Drop, Control and the arenas of other ranks must not be
// accessed; memory from Alloc stays accessible with undefined contents.
func (w *SharedMemory) Drop() {
	if w.holders.Add(-1) == 0 && w.Free != nil {
		w.Free(w.used)
	}
}

// Arena returns this rank's arena.
func (w *SharedMemory) Arena() []byte { return w.Arenas[w.Index] }

// Alloc returns the next n bytes of this rank's arena, zeroed and aligned to 4 KiB, or nil if the
// arena is full: the caller then uses ordinary memory, which operations copy through Control. Alloc
// and Return must not be called concurrently.
func (w *SharedMemory) Alloc(n int) []byte {
	if n < 0 || n > len(w.Arena())-w.used {
		return nil
	}
	p := w.Arena()[w.used : w.used+n : w.used+n]
	w.used = min(len(w.Arena()), (w.used+n+arenaAlign-1)&^(arenaAlign-1))
	return p
}

// Return frees the memory of the last Alloc and reports whether p is that memory; other memory
// stays allocated. Return clears the memory, which no rank may access afterwards.
func (w *SharedMemory) Return(p []byte) bool {
	off, ok := w.Offset(p)
	if !ok || len(p) == 0 || min(len(w.Arena()), (off+len(p)+arenaAlign-1)&^(arenaAlign-1)) != w.used {
		return false
	}
	clear(p)
	w.used = off
	return true
}

// Offset returns p's offset in this rank's arena, in bytes; ok is false if p is outside of it.
func (w *SharedMemory) Offset(p []byte) (off int, ok bool) {
	own := uintptr(unsafe.Pointer(unsafe.SliceData(w.Arena())))
	at := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	if at < own || at+uintptr(len(p)) > own+uintptr(len(w.Arena())) {
		return 0, false
	}
	return int(at - own), true
}
