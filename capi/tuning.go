package main

// #include "border.h"
import "C"

import (
	"math"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/bindings"
)

// together runs a collective call of a strategy, and explains its error. The job's memory is not
// freed until the end.
func (s *strategy) together(body func() error) error {
	calls := &s.group.job.calls
	calls.RLock()
	defer calls.RUnlock()
	if err := body(); err != nil {
		return s.group.explain(err)
	}
	return nil
}

//export borderStrategyTune
func borderStrategyTune(h *C.ringo_strategy, t *C.ringo_tuning, order *C.size_t, n C.size_t, ends *C.size_t, layers C.size_t, f *C.border_fault) C.int {
	return on(uintptr(unsafe.Pointer(h)), f, func(s *strategy) error {
		asked := bindings.Tuning{
			Plan: text(t.plan), Order: counts(order, int(n)), Ends: counts(ends, int(layers)), Choices: text(t.choices), Steps: int64(t.steps), Profile: []byte(text(t.profile)),
		}
		return s.together(func() error { return s.Tune(asked) })
	})
}

//export borderStrategyReady
func borderStrategyReady(h *C.ringo_strategy, layer C.size_t, f *C.border_fault) C.int {
	return on(uintptr(unsafe.Pointer(h)), f, func(s *strategy) error { return s.Ready(int(layer)) })
}

// borderStrategyStep returns 1 after a change of strategy or buckets.
//
//export borderStrategyStep
func borderStrategyStep(h *C.ringo_strategy, f *C.border_fault) (code C.int) {
	defer guard(f, &code)
	s, err := strategyOf(h)
	if err != nil {
		return report(f, err)
	}
	changed := false
	err = s.together(func() (err error) {
		changed, err = s.Step()
		return err
	})
	if err == nil && changed {
		return 1
	}
	return report(f, err)
}

// borderStrategyBuckets writes ends up to room, and returns the number of ends.
//
//export borderStrategyBuckets
func borderStrategyBuckets(h *C.ringo_strategy, ends *C.size_t, room C.size_t, f *C.border_fault) (code C.int) {
	defer guard(f, &code)
	s, err := strategyOf(h)
	if err != nil {
		return report(f, err)
	}
	buckets, err := s.Buckets()
	if err != nil {
		return report(f, err)
	}
	out := unsafe.Slice(ends, min(room, C.size_t(len(buckets)))) // room may exceed the ends
	for i := range out {
		out[i] = C.size_t(buckets[i])
	}
	return C.int(len(buckets))
}

// borderStrategyReport writes the report up to room, and returns the whole length.
//
//export borderStrategyReport
func borderStrategyReport(h *C.ringo_strategy, to *C.char, room C.size_t, f *C.border_fault) (code C.int) {
	defer guard(f, &code)
	s, err := strategyOf(h)
	if err != nil {
		return report(f, err)
	}
	told, err := s.Report()
	if err == nil && len(told) > math.MaxInt32 {
		err = bindings.Misusef("a report of %d bytes", len(told))
	}
	if err != nil {
		return report(f, err)
	}
	if room > 0 {
		out := unsafe.Slice((*byte)(unsafe.Pointer(to)), min(room, C.size_t(len(told)+1)))
		out[copy(out[:len(out)-1], told)] = 0
	}
	return C.int(len(told))
}
