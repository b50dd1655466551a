package main

// #include "border.h"
import "C"

import (
	"errors"
	"runtime/cgo"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bindings"
)

// work is the object behind a ringo_work.
type work struct {
	group   *group
	self    cgo.Handle
	waiting sync.Mutex // held by the waiting thread
	ended   bool       // waited for: the group owns the Work again
	pending
}

// pending is an operation in progress: a collective.Work, or a goroutine's result.
type pending interface {
	Done(within time.Duration) bool
	Wait() error
}

// waited is an operation with work at its end, such as the division of a sum: a goroutine runs
// finish, as ringo_wait may never be called.
type waited struct {
	done chan struct{} // closed at the end
	err  error
}

// startWork runs finish on a new goroutine.
func startWork(finish func() error) *waited {
	w := &waited{done: make(chan struct{})}
	go func() {
		w.err = finish()
		close(w.done)
	}()
	return w
}

// Done reports whether the operation has ended, after a wait of at most within.
func (w *waited) Done(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-w.done:
		return true
	case <-timer.C:
		return false
	}
}

// Wait waits for the end.
func (w *waited) Wait() error {
	<-w.done
	return w.err
}

// request converts r.
func request(r *C.border_request, size int) bindings.Request {
	q := bindings.Request{
		Kind: bindings.Kind(r.kind), Type: bindings.Type(r._type), Op: collective.ReduceOp(r.op), Peer: int(r.peer),
		Dst: r.dst, Src: unsafe.Pointer(r.src), N: int(r.n),
	}
	if r._type < 0 || r._type > 255 {
		q.Type = 255
	}
	if r.op < 0 || r.op > 255 {
		q.Op = 255
	}
	if r.dst_counts != nil {
		q.DstCounts = counts(r.dst_counts, size)
	}
	if r.src_counts != nil {
		q.SrcCounts = counts(r.src_counts, size)
	}
	if r.parts != nil {
		q.Parts = slices.Clone(unsafe.Slice((*unsafe.Pointer)(r.parts), size))
	}
	return q
}

// counts converts numbers of values; overflow gives negative numbers, which are refused.
func counts(p *C.size_t, n int) []int {
	out := make([]int, n)
	for i, c := range unsafe.Slice(p, n) {
		out[i] = int(c)
	}
	return out
}

//export borderRun
func borderRun(h *C.ringo_group, r *C.border_request, f *C.border_fault) (code C.int) {
	defer guard(f, &code)
	g, err := groupOf(h)
	if err == nil {
		g.job.calls.RLock()
		defer g.job.calls.RUnlock()
		err = request(r, g.Size()).Run(g.members)
	}
	if err == nil {
		return C.RINGO_OK
	}
	return report(f, g.explain(err))
}

// explain is the cause of an operation's failure, as known to all ranks.
func (g *group) explain(err error) error {
	if g == nil {
		return err
	}
	return g.job.explain(err)
}

// explain is explain for errors without a group; nil for nil.
func (j *job) explain(err error) error {
	if code, _ := bindings.Of(err); code == bindings.OK || code == bindings.Invalid || code == bindings.Mismatch {
		return err
	}
	return j.Err(err)
}

// wrong turns the caller's own errors into a Misuse.
func wrong(err error) error {
	if op := (*collective.OpError)(nil); errors.As(err, &op) {
		return err
	}
	if code, _ := bindings.Of(err); code == bindings.Failed {
		return bindings.Misusef("%v", err)
	}
	return err
}

// borderStart begins an operation and has read the request on return. After an error nothing was
// started.
//
//export borderStart
func borderStart(h *C.ringo_group, r *C.border_request, out **C.ringo_work, f *C.border_fault) C.int {
	return on(uintptr(unsafe.Pointer(h)), f, func(g *group) error {
		g.job.calls.RLock()
		defer g.job.calls.RUnlock()
		started, err := request(r, g.Size()).Start(g.members)
		if err != nil {
			return g.explain(err)
		}
		*out = g.working(started)
		return nil
	})
}

func (g *group) working(p pending) *C.ringo_work {
	w := &work{group: g, pending: p}
	w.self = cgo.NewHandle(w)
	return *(**C.ringo_work)(unsafe.Pointer(&w.self))
}

// borderWait waits the given milliseconds, or until the end if negative. The handle of an ended
// operation is given up here, whatever the result: a second wait is an error.
//
//export borderWait
func borderWait(h *C.ringo_work, ms C.int64_t, f *C.border_fault) (code C.int) {
	defer guard(f, &code)
	w, err := workOf(h)
	if err != nil {
		return report(f, err)
	}
	if !w.waiting.TryLock() {
		return report(f, bindings.Misusef("another thread waits for this operation"))
	}
	defer w.waiting.Unlock()
	if w.ended {
		return report(f, bindings.Misusef("this operation was waited for already"))
	}
	if ms >= 0 && !w.Done(milliseconds(ms)) {
		return C.RINGO_PENDING
	}
	w.ended = true
	w.self.Delete()
	if err = w.Wait(); err == nil {
		return C.RINGO_OK
	}
	return report(f, w.group.explain(err))
}

// borderConvert needs no job and computes on the caller's thread.
//
//export borderConvert
func borderConvert(typ, back C.int, halves *C.uint16_t, floats *C.float, n C.size_t, f *C.border_fault) (code C.int) {
	defer guard(f, &code)
	if n > 0 && (halves == nil || floats == nil) {
		return report(f, bindings.Misusef("an operand of %d values has no address: it is NULL", n))
	}
	bindings.Convert(bindings.Type(typ), back != 0, unsafe.Pointer(halves), unsafe.Pointer(floats), int(n))
	return C.RINGO_OK
}
