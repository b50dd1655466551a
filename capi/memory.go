package main

// #include <stdlib.h>
// #include <string.h>
// #include "border.h"
import "C"

import (
	"errors"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/bindings"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/hugepage"
)

// alignment of operand memory: a cache line, and the widest vector.
const alignment = 64

//export borderAlloc
func borderAlloc(h *C.ringo_job, bytes C.size_t, out *unsafe.Pointer, f *C.border_fault) C.int {
	return on(uintptr(unsafe.Pointer(h)), f, func(j *job) (err error) {
		*out, err = j.alloc(bytes)
		return err
	})
}

// alloc returns zeroed memory, shared by the host's ranks or else from C: never Go's, which C may
// not keep.
func (j *job) alloc(bytes C.size_t) (unsafe.Pointer, error) {
	if bytes > 1<<62 {
		return nil, bindings.Misusef("more bytes than memory can hold")
	}
	n := max(alignment, (int(bytes)+alignment-1)&^(alignment-1))
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.memory == nil {
		return nil, bindings.Misusef("the job was left")
	}
	if w := j.SharedMemory(); w != nil {
		if b := w.Alloc(n); b != nil {
			hugepage.Collapse(bytesview.As[float32](b))
			p := unsafe.Pointer(unsafe.SliceData(b))
			j.memory[p] = b
			return p, nil
		}
	}
	p := C.aligned_alloc(alignment, C.size_t(n))
	if p == nil {
		return nil, errors.New("no memory is left")
	}
	C.memset(p, 0, C.size_t(n))
	j.memory[p] = nil
	return p, nil
}

//export borderFree
func borderFree(h *C.ringo_job, p unsafe.Pointer, f *C.border_fault) C.int {
	return on(uintptr(unsafe.Pointer(h)), f, func(j *job) error { return j.free(p) })
}

func (j *job) free(p unsafe.Pointer) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	shared, ours := j.memory[p]
	switch {
	case !ours:
		return bindings.Misusef("this memory is not of ringo_alloc of this job, or was given back")
	case shared == nil:
		C.free(p)
	default:
		j.SharedMemory().Return(shared)
	}
	delete(j.memory, p)
	return nil
}
