package transport

import (
	"sync/atomic"
	"unsafe"
)

// SharedMemory is memory that some ranks of a mesh share, usually those of one host.
// What one rank stores there the others load: nothing is sent. Pages that
// nobody has touched take no memory.
type SharedMemory struct {
	// Ranks are the mesh's ranks that share it, ascending; this one is Ranks[Index].
	Ranks []int
	Index int
	// Control is the same memory for every rank, zero at the start and aligned
	// to pages: the flags and staging buffers of the groups over the mesh,
	// ControlBytes for each rank.
	Control []byte
	// Arenas[i] is the arena of Ranks[i] as it is mapped here. All have the same
	// length, are aligned to pages and zero at the start.
	Arenas [][]byte
	// Cores is how many processors the ranks may run on, together: with fewer
	// than ranks a wait gives way at once.
	Cores int
	// OneProcess says that the ranks are goroutines of one process.
	OneProcess bool
	// Free, if set, is called once, when the last holder drops the memory, with
	// how many bytes of this rank's own arena Alloc has given out.
	Free func(used int)
	// BytesCarried is how many bytes of operands this rank has given to operations that the ranks
	// carried out here, in place of sending them.
	BytesCarried atomic.Int64

	used    int // of this rank's own arena, in bytes
	holders atomic.Int32
}

// ControlBytes is the length of SharedMemory.Control for each rank.
const ControlBytes = 34 << 20

// arenaAlign is what Alloc aligns to: a page, so that ranks on different
// sockets do not share one.
const arenaAlign = 4096

// SharedMemoryProvider is a mesh that may share memory.
type SharedMemoryProvider interface {
	// SharedMemory returns the memory that this rank shares, nil if there is none.
	SharedMemory() *SharedMemory
}

// SharedMemoryOf returns what m shares, nil if nothing.
func SharedMemoryOf(m Mesh) *SharedMemory {
	if w, ok := m.(SharedMemoryProvider); ok {
		return w.SharedMemory()
	}
	return nil
}

// Hold keeps the memory from being given back until a Drop. The mesh holds it
// until its Close; a group holds it until its last operation has ended.
func (w *SharedMemory) Hold() { w.holders.Add(1) }

// Drop ends a Hold. After the last one Control and the other ranks' arenas must
// not be touched; what Alloc returned may be, but what is in it is undefined.
func (w *SharedMemory) Drop() {
	if w.holders.Add(-1) == 0 && w.Free != nil {
		w.Free(w.used)
	}
}

// Arena is this rank's own arena.
func (w *SharedMemory) Arena() []byte { return w.Arenas[w.Index] }

// Alloc returns the next n bytes of this rank's own arena, zero and aligned to
// 4 KiB, or nil when it does not have them: then ordinary memory serves, which
// operations copy through Control. It is not to be called from two goroutines at
// once, nor is Return.
func (w *SharedMemory) Alloc(n int) []byte {
	if n < 0 || n > len(w.Arena())-w.used {
		return nil
	}
	p := w.Arena()[w.used : w.used+n : w.used+n]
	w.used = min(len(w.Arena()), (w.used+n+arenaAlign-1)&^(arenaAlign-1))
	return p
}

// Return gives back what the last Alloc returned, and reports whether p is that:
// anything else stays given out. They are cleared for the next Alloc, and not to
// be touched any more, by no rank.
func (w *SharedMemory) Return(p []byte) bool {
	off, ok := w.Offset(p)
	if !ok || len(p) == 0 || min(len(w.Arena()), (off+len(p)+arenaAlign-1)&^(arenaAlign-1)) != w.used {
		return false
	}
	clear(p)
	w.used = off
	return true
}

// Offset returns where p lies in this rank's own arena, in bytes; ok is false
// when it does not.
func (w *SharedMemory) Offset(p []byte) (off int, ok bool) {
	own := uintptr(unsafe.Pointer(unsafe.SliceData(w.Arena())))
	at := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	if at < own || at+uintptr(len(p)) > own+uintptr(len(w.Arena())) {
		return 0, false
	}
	return int(at - own), true
}
