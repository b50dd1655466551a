package simd

import (
	"sync"
	"syscall"
	"unsafe"
)

// fences are mappings whose last page cannot be read. Each is used again after
// all others, when no test holds its values any more.
var fences struct {
	sync.Mutex
	next int
	maps [512][]byte
}

// faultAfter returns n elements that end where a page begins that can be
// neither read nor written; nil where the system gives none.
func faultAfter(n int) []float32 {
	page := syscall.Getpagesize()
	fences.Lock()
	defer fences.Unlock()
	m := &fences.maps[fences.next]
	fences.next = (fences.next + 1) % len(fences.maps)
	size := (4*n+page-1)/page*page + page
	if len(*m) < size {
		if *m != nil {
			_ = syscall.Munmap(*m) // what stays mapped is only lost memory
			*m = nil
		}
		mapped, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil || syscall.Mprotect(mapped[size-page:], syscall.PROT_NONE) != nil {
			return nil
		}
		*m = mapped
	}
	end := (*m)[len(*m)-page-4*n:]
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(end))), n)
}
