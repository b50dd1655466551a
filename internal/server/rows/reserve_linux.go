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

// defaultShift selects one slab per array.
const defaultShift = wholeShift

// reservation is a reserved range of addresses; bytes [0, open) are usable.
type reservation struct {
	mapped []byte       // whole mapping, for munmap
	usable []byte       // aligned to a large page
	open   atomic.Int64 // usable bytes at the front
	made   int          // end of the last prefaulted page

	busy   atomic.Bool // a prefault is running
	making sync.WaitGroup
}

// reserve reserves addresses, but no memory.
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

// opened returns the number of usable bytes at the front.
func (r *reservation) opened() int { return int(r.open.Load()) }

// grow makes addresses [0, bytes) usable, in whole pages, large ones from largeFrom.
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
		// Fails on kernels without transparent huge pages: then pages are small.
		_ = unix.Madvise(r.usable[largeFrom:end], unix.MADV_HUGEPAGE)
	}
	for open < end && !r.open.CompareAndSwap(int64(open), int64(end)) { // open may have grown
		open = r.opened()
	}
	return nil
}

// prefault prepares, on another goroutine, the large page after address bytes, and makes addresses
// [0, want) usable. The first write to a page waits some 100 µs until the system has cleared it,
// and in a virtual machine some 5 ms until the host has found memory: the time of ten batches.
// Opening waits equally long while another page is prepared.
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
		// The thread ends with the goroutine. Its low priority favours other threads, which would
		// otherwise wait for a core and for the page equally long.
		runtime.LockOSThread()
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, besideNice)
		// After an error the caller gets the error again when it needs the memory.
		_ = r.grow(want)
		if makes {
			_ = unix.Madvise(r.usable[from:end], unix.MADV_POPULATE_WRITE) // since Linux 5.14
		}
	})
}

// besideNice is the nice value (priority) of threads that prepare memory: high enough to give way
// to other threads, low enough to progress on a busy host.
const besideNice = 10

func (r *reservation) release() error {
	r.making.Wait()
	if err := unix.Munmap(r.mapped); err != nil {
		return fmt.Errorf("giving addresses back: %w", err)
	}
	return nil
}
