package main

// #include "border.h"
import "C"

import (
	"runtime/cgo"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/bindings"
)

// tables is the object behind a ringo_tables, registered with the job, which closes remaining
// tables on leave.
type tables struct {
	job  *job
	self cgo.Handle
	*bindings.Tables
}

func tablesOf(h *C.ringo_tables) (*tables, error) {
	return objectOf[tables](uintptr(unsafe.Pointer(h)))
}

// borderTablesOpen connects to the job's servers, and waits for servers still starting.
//
//export borderTablesOpen
func borderTablesOpen(h *C.ringo_job, schema *C.char, out **C.ringo_tables, f *C.border_fault) C.int {
	return on(uintptr(unsafe.Pointer(h)), f, func(j *job) error {
		opened, err := bindings.OpenTables(j.Job, text(schema))
		if err != nil {
			return j.explain(err)
		}
		t := &tables{job: j, Tables: opened}
		t.self = cgo.NewHandle(t)
		if err := j.closeWith(t.self, t); err != nil {
			return err
		}
		*out = *(**C.ringo_tables)(unsafe.Pointer(&t.self))
		return nil
	})
}

// borderStartPull requests rows and holds the job's calls until arrival: rows may be in the job's
// memory.
//
//export borderStartPull
func borderStartPull(h *C.ringo_tables, table C.size_t, peek C.int, step C.uint64_t, keys *C.uint64_t, n C.size_t, rows *C.float, out **C.ringo_work, f *C.border_fault) (code C.int) {
	defer guard(f, &code)
	t, into, asked, err := batch(h, table, keys, n, rows, false)
	if err != nil {
		return report(f, err)
	}
	calls := &t.job.calls
	calls.RLock()
	pull, err := t.Pull(int(table), peek != 0, uint64(step), asked, into)
	if err != nil {
		calls.RUnlock()
		return report(f, t.job.explain(err))
	}
	*out = (&group{job: t.job}).working(startWork(func() error {
		defer calls.RUnlock()
		return pull.Wait()
	}))
	return C.RINGO_OK
}

// borderPush has copied keys and gradients on return.
//
//export borderPush
func borderPush(h *C.ringo_tables, table C.size_t, step C.uint64_t, keys *C.uint64_t, n C.size_t, grads *C.float, f *C.border_fault) (code C.int) {
	defer guard(f, &code)
	t, from, pushed, err := batch(h, table, keys, n, grads, true)
	if err == nil {
		err = t.job.explain(t.Push(int(table), uint64(step), pushed, from))
	}
	return report(f, err)
}

// batch is a request's tables, the values and the keys, in C memory.
func batch(h *C.ringo_tables, table C.size_t, keys *C.uint64_t, n C.size_t, values *C.float, push bool) (*tables, []float32, []uint64, error) {
	t, err := tablesOf(h)
	if err != nil {
		return nil, nil, nil, err
	}
	width, gradient, err := t.Width(int(table))
	if err != nil {
		return nil, nil, nil, err
	}
	if push {
		width = gradient
	}
	switch {
	case n > 1<<40:
		return nil, nil, nil, bindings.Misusef("%d keys are more than memory can hold", uint64(n))
	case n > 0 && (keys == nil || values == nil):
		return nil, nil, nil, bindings.Misusef("%d rows without an address: it is NULL", uint64(n))
	}
	return t, unsafe.Slice((*float32)(values), int(n)*width), unsafe.Slice((*uint64)(keys), int(n)), nil
}

// borderClock ends this rank's part of a step.
//
//export borderClock
func borderClock(h *C.ringo_tables, step C.uint64_t, rate C.double, f *C.border_fault) C.int {
	return on(uintptr(unsafe.Pointer(h)), f, func(t *tables) error { return t.job.explain(t.Clock(uint64(step), float64(rate))) })
}

// borderFlush waits for the servers.
//
//export borderFlush
func borderFlush(h *C.ringo_tables, f *C.border_fault) C.int {
	return on(uintptr(unsafe.Pointer(h)), f, func(t *tables) error { return t.job.explain(t.Flush()) })
}

// borderSave makes the servers write a checkpoint after step, and writes each server's checkpoint
// number to C memory unless numbers is NULL. room is the length of numbers.
//
//export borderSave
func borderSave(h *C.ringo_tables, step, oldest C.uint64_t, numbers *C.uint64_t, room C.size_t, f *C.border_fault) C.int {
	return on(uintptr(unsafe.Pointer(h)), f, func(t *tables) error {
		if servers := t.job.ParameterServers(); numbers != nil && int(room) < servers {
			return bindings.Misusef("room for the numbers of %d servers, there are %d", int(room), servers)
		}
		saved, err := t.Save(uint64(step), uint64(oldest))
		if err != nil {
			return t.job.explain(err)
		}
		if numbers != nil {
			copy(unsafe.Slice((*uint64)(numbers), room), saved)
		}
		return nil
	})
}

// borderTablesClose leaves the servers.
//
//export borderTablesClose
func borderTablesClose(h *C.ringo_tables, f *C.border_fault) C.int {
	return on(uintptr(unsafe.Pointer(h)), f, func(t *tables) error {
		if err := t.job.disown(t.self); err != nil {
			return err
		}
		return t.job.explain(t.Close())
	})
}
