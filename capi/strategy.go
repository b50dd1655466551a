package main

// #include "border.h"
import "C"

import (
	"runtime/cgo"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/bindings"
)

// strategy is the object behind a ringo_strategy, registered with the job, which closes remaining
// strategies on leave.
type strategy struct {
	group *group
	self  cgo.Handle
	*bindings.Strategy
}

func strategyOf(h *C.ringo_strategy) (*strategy, error) {
	return objectOf[strategy](uintptr(unsafe.Pointer(h)))
}

// borderStrategyOpen checks names and lengths first, and keeps no C memory. A job left during the
// call refuses the strategy.
//
//export borderStrategyOpen
func borderStrategyOpen(h *C.ringo_group, name *C.char, density C.double, names **C.char, lengths *C.size_t, n C.size_t, out **C.ringo_strategy, f *C.border_fault) C.int {
	return on(uintptr(unsafe.Pointer(h)), f, func(g *group) error {
		all := make([]string, n)
		for i, p := range unsafe.Slice(names, n) {
			all[i] = text(p)
		}
		s, err := bindings.NewStrategy(g.members, text(name), float64(density), all, counts(lengths, int(n)))
		if err != nil {
			return err
		}
		opened := &strategy{group: g, Strategy: s}
		opened.self = cgo.NewHandle(opened)
		if err := g.job.closeWith(opened.self, opened); err != nil {
			return err
		}
		*out = *(**C.ringo_strategy)(unsafe.Pointer(&opened.self))
		return nil
	})
}

// borderStrategyArrange rearranges the parameters in buckets; residuals move with their parameters.
//
//export borderStrategyArrange
func borderStrategyArrange(h *C.ringo_strategy, order *C.size_t, n C.size_t, ends *C.size_t, buckets C.size_t, f *C.border_fault) C.int {
	return on(uintptr(unsafe.Pointer(h)), f, func(s *strategy) error { return s.Arrange(counts(order, int(n)), counts(ends, int(buckets))) })
}

// borderStrategyClose ends the strategy after the exchanges in progress. The group stays open.
//
//export borderStrategyClose
func borderStrategyClose(h *C.ringo_strategy, f *C.border_fault) C.int {
	return on(uintptr(unsafe.Pointer(h)), f, func(s *strategy) error {
		if err := s.group.job.disown(s.self); err != nil {
			return err
		}
		return s.Close()
	})
}

// borderStartExchange compresses on the caller's thread, with the gradients in its caches, and
// returns at the exchange's start. The job's memory is not freed until the end: calls is held.
//
//export borderStartExchange
func borderStartExchange(h *C.ringo_strategy, bucket C.size_t, grads *C.float, n C.size_t, out **C.ringo_work, f *C.border_fault) (code C.int) {
	defer guard(f, &code)
	s, err := strategyOf(h)
	if err == nil && grads == nil {
		err = bindings.Misusef("gradients have no address: it is NULL")
	}
	if err != nil {
		return report(f, err)
	}
	calls := &s.group.job.calls
	calls.RLock()
	finish, err := s.Start(int(bucket), unsafe.Slice((*float32)(grads), n))
	if err != nil {
		calls.RUnlock()
		return report(f, s.group.explain(err))
	}
	*out = s.group.working(startWork(func() error {
		defer calls.RUnlock()
		return finish()
	}))
	return C.RINGO_OK
}

// borderResidual copies a parameter's residual to C memory or, with set, from C memory. The copy is
// without the strategy's lock: ringo.h forbids exchanges in progress.
//
//export borderResidual
func borderResidual(h *C.ringo_strategy, param C.size_t, values *C.float, n C.size_t, set C.int, f *C.border_fault) C.int {
	return on(uintptr(unsafe.Pointer(h)), f, func(s *strategy) error {
		kept, err := s.Residual(int(param))
		switch {
		case err != nil:
		case kept == nil:
			err = bindings.Misusef("this strategy keeps nothing")
		case values == nil || len(kept) != int(n):
			err = bindings.Misusef("%d values, the parameter has %d", n, len(kept))
		case set != 0:
			copy(kept, unsafe.Slice((*float32)(values), n))
		default:
			copy(unsafe.Slice((*float32)(values), n), kept)
		}
		return err
	})
}
