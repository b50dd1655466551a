// Command capi is a library, not a command: -buildmode=c-shared builds libringo.so,
// -buildmode=c-archive libringo.a. ringo.h documents the functions, and build.sh builds and
// installs the library. capi is the only package with cgo; C-free code is in internal/bindings.
//
// A call goes from border.c, with the functions of ringo.h, to an exported function here. C handles
// are numbers of runtime/cgo, never pointers: a wrong or stale handle is detected, not followed.
package main

// #cgo CFLAGS: -std=gnu11 -Wall -Wextra -Wno-unused-parameter
// #include "border.h"
import "C"

import (
	"fmt"
	"runtime/cgo"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/bindings"
)

func main() {} // never called in a library

// report returns an error's code, and writes rank and text to f.
func report(f *C.border_fault, err error) C.int {
	code, rank := bindings.Of(err)
	if code == bindings.OK || code == bindings.Pending {
		return C.int(code)
	}
	setError(f, rank, bindings.Text(err, len(f.text)-1))
	return C.int(code)
}

func setError(f *C.border_fault, rank int, text string) {
	f.rank = C.int(rank)
	room := unsafe.Slice((*byte)(unsafe.Pointer(&f.text)), len(f.text))
	room[copy(room[:len(room)-1], text)] = 0
}

// guard, deferred, turns a panic into a code, as panics cannot cross into C.
func guard(f *C.border_fault, code *C.int) {
	if p := recover(); p != nil {
		setError(f, -1, bindings.Text(fmt.Errorf("a fault within libringo: %v", p), len(f.text)-1))
		*code = C.int(bindings.Internal)
	}
}

// on runs body with the object behind a handle, and reports its error. A panic becomes a code.
func on[T any](handle uintptr, f *C.border_fault, body func(t *T) error) (code C.int) {
	defer guard(f, &code)
	t, err := objectOf[T](handle)
	if err == nil {
		err = body(t)
	}
	return report(f, err)
}

// objectOf returns the object behind a C handle: a *job, *group or *work. Errors: a NULL handle,
// another kind, or a closed handle.
func objectOf[T any](handle uintptr) (t *T, err error) {
	if handle == 0 {
		return nil, bindings.Misusef("a handle is NULL")
	}
	defer func() {
		if recover() != nil {
			t, err = nil, bindings.Misusef("a handle is not one that is open: it may have been closed, or waited for")
		}
	}()
	t, ok := cgo.Handle(handle).Value().(*T)
	if !ok {
		return nil, bindings.Misusef("a handle is of another kind")
	}
	return t, nil
}

func jobOf(h *C.ringo_job) (*job, error)       { return objectOf[job](uintptr(unsafe.Pointer(h))) }
func groupOf(h *C.ringo_group) (*group, error) { return objectOf[group](uintptr(unsafe.Pointer(h))) }
func workOf(h *C.ringo_work) (*work, error)    { return objectOf[work](uintptr(unsafe.Pointer(h))) }

func text(p *C.char) string {
	if p == nil {
		return ""
	}
	return C.GoString(p)
}

// write writes text and a zero byte to p.
func write(p *C.char, room C.size_t, text string) error {
	if uint64(len(text)) >= uint64(room) {
		return bindings.Misusef("%q needs room for %d bytes, there are %d", text, len(text)+1, room)
	}
	out := unsafe.Slice((*byte)(unsafe.Pointer(p)), len(text)+1)
	out[copy(out, text)] = 0
	return nil
}
