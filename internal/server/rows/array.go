package rows

import (
	"errors"
	"fmt"
	"unsafe"
)

// array is memory for items of width values that grows at its end and never moves: items may be
// read while it grows. Concurrent growing is not allowed. The memory starts as zeros and is
// outside the garbage-collected heap, which would grow to a multiple before a collection.
//
// On Linux an array is one slab: reserved address space for all items, mapped page by page at the
// first write. On other systems, and under the race detector, which does not support such memory,
// an array has slabs of a fixed number of items on the heap.
type array[T any] struct {
	slabs [][]T
	flat  []T    // the only slab, if there is one
	shift uint   // 1<<shift items per slab
	mask  uint32 // mask of an item's index in its slab
	width int
	most  int // maximum number of items
	ready int // usable items

	space *reservation // nil for slabs on the heap
}

// wholeShift is the shift of arrays with one slab.
const wholeShift = 31

// newArray reserves space for `most` items, in slabs of 1<<shift items; wholeShift: one slab.
func newArray[T any](width, most int, shift uint) (*array[T], error) {
	a := &array[T]{shift: shift, mask: 1<<shift - 1, width: width, most: most}
	if shift < wholeShift {
		a.slabs = make([][]T, (most+1<<shift-1)>>shift)
		return a, nil
	}
	space, err := reserve(a.bytesOf(most))
	if err != nil {
		return nil, err
	}
	a.space = space
	a.flat = unsafe.Slice((*T)(space.start()), most*width)
	a.slabs = [][]T{a.flat}
	return a, nil
}

func (a *array[T]) bytesOf(items int) int {
	var v T
	return items * a.width * int(unsafe.Sizeof(v))
}

// grow makes items [0, items) usable, and starts to prefault memory for the next ones.
func (a *array[T]) grow(items int) error {
	if items > a.most {
		return fmt.Errorf("%d of at most %d", items, a.most)
	}
	if a.space == nil {
		for s := a.ready >> a.shift; s<<a.shift < items; s++ {
			a.slabs[s] = make([]T, a.width<<a.shift)
			a.ready = (s + 1) << a.shift
		}
		return nil
	}
	// Steps of a 16th make calls rare and leave space for prefaulted pages; untouched pages take no
	// memory.
	step := items/16 + max(4096, 2*largePage/a.bytesOf(1))
	want := min(a.most, items+step)
	if items > a.ready { // a concurrent prefault may have opened it
		a.ready = min(a.most, a.space.opened()/a.bytesOf(1))
	}
	if items > a.ready {
		if err := a.space.grow(a.bytesOf(want)); err != nil {
			return err
		}
		a.ready = want
	}
	if a.ready-items > step/2 {
		want = a.ready
	}
	a.space.prefault(a.bytesOf(items), a.bytesOf(want))
	return nil
}

// item returns item i, which must be usable.
func (a *array[T]) item(i uint32) []T {
	lo := int(i&a.mask) * a.width
	return a.slabs[i>>(a.shift&31)][lo : lo+a.width : lo+a.width]
}

// resident returns the largest possible memory of items [0, items) in bytes, including the rest of
// the last page and one page prepared in advance.
func (a *array[T]) resident(items int) int {
	if a.space == nil {
		return a.bytesOf((items + int(a.mask)) >> a.shift << a.shift)
	}
	bytes, ahead := a.bytesOf(items), 0
	if bytes >= largePage {
		ahead = largePage
	}
	return min(a.space.size(), roundPage(bytes)+ahead)
}

// release frees the memory. The array must not be used afterwards.
func (a *array[T]) release() error {
	if a == nil {
		return nil
	}
	a.slabs, a.flat = nil, nil
	if a.space == nil {
		return nil
	}
	space := a.space
	a.space = nil
	return space.release()
}

// Pages of memory: a large page covers hundreds of times more memory per TLB entry, which matters
// if every access is to another page. Arrays below largeFrom, as in many small tables, use small
// pages, of at most 64 KiB on any system.
const (
	smallPage = 64 << 10
	largePage = 2 << 20
	largeFrom = 4 << 20
)

// roundPage rounds bytes up to the end of a page.
func roundPage(bytes int) int {
	page := smallPage
	if bytes > largeFrom {
		page = largePage
	}
	return (bytes + page - 1) / page * page
}

type releaser interface{ release() error }

func releaseAll(arrays ...releaser) error {
	var errs []error
	for _, a := range arrays {
		errs = append(errs, a.release())
	}
	return errors.Join(errs...)
}
