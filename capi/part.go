package main

// #include <stdlib.h>
// #include "border.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/bindings"
	"github.com/ringo-ml/ringo/internal/heter"
)

// part is a heter-trainer's computation, a ringo_part of the program.
type part struct {
	c     *C.ringo_part
	micro *C.ringo_micro_batch
	// arrays are the pointers of micro, in C memory: inputs, and their gradients.
	arrays []*C.float
	pins   runtime.Pinner // of a micro-batch's tensors
}

//export borderServePart
func borderServePart(o *C.ringo_options, settings *C.char, c *C.ringo_part, f *C.border_fault) (code C.int) {
	defer guard(f, &code)
	p := &part{c: c}
	defer p.free()
	return report(f, bindings.ServePart(context.Background(), placeOf(o), lookup, text(settings), bindings.Part{Open: p.open, Report: p.report}))
}

func (p *part) free() {
	C.free(unsafe.Pointer(p.micro))
	C.free(unsafe.Pointer(unsafe.SliceData(p.arrays)))
}

func (p *part) report(line string) {
	s := C.CString(line)
	defer C.free(unsafe.Pointer(s))
	C.border_part_report(p.c, s)
}

// call runs a function of the program, and returns its text as an error.
func call(what string, do func(text *C.char, room C.size_t) C.int) error {
	const room = 2048
	b := (*C.char)(C.calloc(1, room))
	defer C.free(unsafe.Pointer(b))
	code := do(b, room)
	if code == 0 {
		return nil
	}
	if said := C.GoString(b); said != "" {
		return errors.New(said)
	}
	return fmt.Errorf("the program's function %s has returned %d without a text", what, int(code))
}

func (p *part) open(about []byte, cut *heter.Cut) (*heter.Callbacks, error) {
	said, m := C.CString(string(about)), (*C.ringo_part_memory)(C.calloc(1, C.sizeof_ringo_part_memory))
	defer C.free(unsafe.Pointer(said))
	defer C.free(unsafe.Pointer(m))
	if err := call("open", func(text *C.char, room C.size_t) C.int { return C.border_part_open(p.c, said, m, text, room) }); err != nil {
		return nil, err
	}
	n := len(cut.In)
	p.micro = (*C.ringo_micro_batch)(C.calloc(1, C.sizeof_ringo_micro_batch))
	p.arrays = unsafe.Slice((**C.float)(C.calloc(C.size_t(2*n), C.size_t(unsafe.Sizeof(p.micro.out)))), 2*n)
	p.micro.in, p.micro.gradients = &p.arrays[0], &p.arrays[n]
	d := &heter.Callbacks{Start: heter.Start(m.start), OnRun: p.run, OnClose: func() { C.border_part_close(p.c) }}
	d.Memory.Gradients, d.Memory.Values, d.Memory.State = floats(m.gradients, m.n), floats(m.values, m.n), floats(m.state, m.n_state)
	d.OnUpdate = func(rate float64, scale float32) error {
		return call("update", func(text *C.char, room C.size_t) C.int {
			return C.border_part_update(p.c, C.double(rate), C.float(scale), text, room)
		})
	}
	d.OnSync = func(action heter.SyncAction) error {
		return call("sync", func(text *C.char, room C.size_t) C.int { return C.border_part_sync(p.c, C.int(action), text, room) })
	}
	return d, nil
}

func floats(p *C.float, n C.size_t) []float32 {
	if p == nil {
		n = 0
	}
	return unsafe.Slice((*float32)(p), int(n))
}

// run shows the program a micro-batch in place.
func (p *part) run(m *heter.MicroBatch) error {
	defer p.pins.Unpin()
	n := len(m.In)
	for i := range m.In {
		p.arrays[i] = p.pinned(m.In[i])
		if p.arrays[n+i] = nil; !m.Eval {
			p.arrays[n+i] = p.pinned(m.Grads[i])
		}
	}
	c := p.micro
	c.n, c.seed, c.eval, c.loss, c.terms, c.correct = C.size_t(m.N), C.float(m.Seed), 0, 0, 0, 0
	if m.Eval {
		c.eval = 1
	}
	c.out, c.targets, c.labels = p.pinned(m.Out), p.pinned(m.Targets), nil
	if len(m.Labels) > 0 {
		p.pins.Pin(&m.Labels[0])
		c.labels = (*C.int32_t)(&m.Labels[0])
	}
	if err := call("run", func(text *C.char, room C.size_t) C.int { return C.border_part_run(p.c, c, text, room) }); err != nil {
		return err
	}
	if m.Loss, m.Terms, m.Correct = float32(c.loss), int(c.terms), int(c.correct); m.Terms < 1 {
		return fmt.Errorf("the part's loss of %d samples has %d terms: want at least 1", m.N, m.Terms)
	}
	return nil
}

// pinned returns the address of values, which stay in place until Unpin.
func (p *part) pinned(x []float32) *C.float {
	if len(x) == 0 {
		return nil
	}
	p.pins.Pin(&x[0])
	return (*C.float)(&x[0])
}
