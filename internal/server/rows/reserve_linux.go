//go:build linux && !race

package rows

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// defaultShift: arrays are one slab.
const defaultShift = wholeShift

// reservation is a range of addresses whose front may be used.
type reservation struct {
	mapped []byte       // as it was mapped, to be given back
	usable []byte       // from a large page's border on
	open   atomic.Int64 // bytes at the front that may be used
	made   int          // where the last page ends that was made ahead

	busy   atomic.Bool // a goroutine prepares memory beside
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

// opened is how many bytes at the front may be used.
func (r *reservation) opened() int { return int(r.open.Load()) }

// grow opens the first bytes, large pages behind the first largeFrom: what is
// opened ends where a page does.
func (r *reservation) grow(bytes int) error {
	open, end := r.opened(), min(len(r.usable), roundPage(bytes))
	if end <= open {
		return nil
	}
	more := r.usable[open:end]
	if err := unix.Mprotect(more, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return fmt.Errorf("taking %d KiB of memory beside %d MiB: %w", len(more)>>10, open>>20, err)
	}
	if end > largeFrom {
		// May fail, where the kernel was built without: then pages are small.
		_ = unix.Madvise(r.usable[largeFrom:end], unix.MADV_HUGEPAGE)
	}
	for open < end && !r.open.CompareAndSwap(int64(open), int64(end)) { // another may have opened more
		open = r.opened()
	}
	return nil
}

// prefault prepares, by a goroutine beside the caller, the large page behind the one in which
// the first bytes end, and opens the first want bytes. The first write to a page waits until
// the system has emptied all of it, some 100 µs, and in a virtual machine until its host has
// found memory, some 5 ms: as long as ten batches take. Opening waits as long where another
// page is being made.
func (r *reservation) prefault(bytes, want int) {
	from := bytes/largePage*largePage + largePage
	end := min(len(r.usable), from+largePage)
	opens := want > largeFrom && min(len(r.usable), roundPage(want)) > r.opened()
	if !opens {
		want = r.opened()
	}
	makes := from >= largeFrom && from >= r.made && from < end && end <= roundPage(want)
	if !makes && !opens || r.busy.Swap(true) {
		return
	}
	if makes {
		r.made = end
	}
	r.making.Go(func() {
		defer r.busy.Store(false)
		// The thread ends with the goroutine. Others first: they would wait for a core as
		// long as for the page.
		runtime.LockOSThread()
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, besideNice)
		// What fails is done, or said, when the memory is used.
		_ = r.grow(want)
		if makes {
			_ = unix.Madvise(r.usable[from:end], unix.MADV_POPULATE_WRITE) // since Linux 5.14
		}
	})
}

// besideNice is how nice threads are that prepare memory: enough to give way, and little
// enough to come forward on a busy machine.
const besideNice = 10

func (r *reservation) release() error {
	r.making.Wait()
	if err := unix.Munmap(r.mapped); err != nil {
		return fmt.Errorf("giving addresses back: %w", err)
	}
	return nil
}
