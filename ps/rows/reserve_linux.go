//go:build linux && !race

package rows

import (
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// defaultShift: arrays are one slab.
const defaultShift = wholeShift

// reservation is a range of addresses whose front may be used.
type reservation struct {
	mapped []byte // as it was mapped, to be given back
	usable []byte // from a large page's border on
	open   int    // bytes at the front that may be used
	made   int    // where the last page ends that was made ahead
	making sync.WaitGroup
}

// reserve takes addresses and no memory.
func reserve(bytes int) (*reservation, error) {
	size := roundPage(bytes)
	m, err := unix.Mmap(-1, 0, size+largePage, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserving addresses for %d MiB: %w: lower MaxRows or the limit on address space (ulimit -v)", size>>20, err)
	}
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(m))) % largePage)
	return &reservation{mapped: m, usable: m[skip : skip+size]}, nil
}

func (r *reservation) start() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(r.usable)) }

func (r *reservation) size() int { return len(r.usable) }

// grow opens the first bytes, large pages behind the first largeFrom: what is
// opened ends where a page does.
func (r *reservation) grow(bytes int) error {
	end := min(len(r.usable), roundPage(bytes))
	if end <= r.open {
		return nil
	}
	more := r.usable[r.open:end]
	if err := unix.Mprotect(more, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return fmt.Errorf("taking %d KiB of memory beside %d MiB: %w", len(more)>>10, r.open>>20, err)
	}
	if r.open = end; end > largeFrom {
		// May fail, where the kernel was built without: then pages are small.
		_ = unix.Madvise(r.usable[largeFrom:end], unix.MADV_HUGEPAGE)
	}
	return nil
}

// ahead has the large page made that comes behind the one in which the first bytes end,
// by a goroutine beside the caller. The first write to a page waits until the system has
// emptied all of it, some 100 µs, and in a virtual machine until its host has found
// memory, some 5 ms: as long as ten batches take.
func (r *reservation) ahead(bytes int) {
	from := bytes/largePage*largePage + largePage
	end := min(r.open, from+largePage)
	if from < largeFrom || from < r.made || from >= end {
		return
	}
	r.made = end
	page := r.usable[from:end]
	r.making.Go(func() {
		// May fail, before Linux 5.14: then the page is made when it is written.
		_ = unix.Madvise(page, unix.MADV_POPULATE_WRITE)
	})
}

func (r *reservation) release() error {
	r.making.Wait()
	if err := unix.Munmap(r.mapped); err != nil {
		return fmt.Errorf("giving addresses back: %w", err)
	}
	return nil
}
