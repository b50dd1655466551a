package rows

import (
	"errors"
	"fmt"
	"unsafe"
)

// array is memory for items of width values that grows at its end and never
// moves: what lies in it may be read while it grows. Growing is for one goroutine
// at a time. Its memory begins as zeros and is no business of the garbage
// collector, which would let it grow to a multiple before it looked at it.
//
// On Linux all of it is one slab: address space for the most items is reserved at
// once and becomes memory page by page, when an item is written for the first
// time. Elsewhere, and under the race detector, which does not see such memory,
// it is slabs of a fixed number of items on the heap.
type array[T any] struct {
	slabs [][]T
	flat  []T    // the slab, if there is only one
	shift uint   // 1<<shift items per slab
	mask  uint32 // of an item's place in its slab
	width int
	most  int // items
	ready int // items that may be used

	space *reservation // nil: the heap
}

// wholeShift is the shift of arrays that are one slab.
const wholeShift = 31

// newArray makes room for most items in slabs of 1<<shift items, wholeShift for a
// single one where that can be had.
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

// grow makes the first items usable, and lets memory for the next ones be prepared.
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
	// Steps of a 16th keep calls few, and have room for pages that are made ahead;
	// those that nothing has touched take no memory.
	step := items/16 + max(4096, 2*largePage/a.bytesOf(1))
	want := min(a.most, items+step)
	if items > a.ready { // maybe it was opened beside
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

// item is item i, which must be ready.
func (a *array[T]) item(i uint32) []T {
	lo := int(i&a.mask) * a.width
	return a.slabs[i>>(a.shift&31)][lo : lo+a.width : lo+a.width]
}

// resident is how many bytes of memory the first items take at most, the rest of
// the last page included, and the page that was made ahead.
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

// release gives the memory back. Nothing may use the array any more.
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

// Pages of memory: large ones hold hundreds of times more behind one entry of the
// tables of addresses, which matters where every access is to another page. Arrays
// below largeFrom, which many small tables have, make do with small ones, of at most
// 64 KiB on any system.
const (
	smallPage = 64 << 10
	largePage = 2 << 20
	largeFrom = 4 << 20
)

// roundPage rounds bytes up to where the page ends in which the last of them lies.
func roundPage(bytes int) int {
	page := smallPage
	if bytes > largeFrom {
		page = largePage
	}
	return (bytes + page - 1) / page * page
}

// releaser is any array.
type releaser interface{ release() error }

func releaseAll(arrays ...releaser) error {
	var errs []error
	for _, a := range arrays {
		errs = append(errs, a.release())
	}
	return errors.Join(errs...)
}
