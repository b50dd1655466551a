package service

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/heter/message"
)

// The device's state, as one sequence, is read by trainers for checkpoints, and written before the
// first step of a resumed run.

// span calls do with the slices of the state for n values from lo.
func (s *Server) span(lo, n int, do func(x []float32)) {
	for _, x := range s.device.State() {
		if lo < len(x) && n > 0 {
			part := x[lo:min(len(x), lo+n)]
			do(part)
			lo, n = lo+len(part), n-len(part)
		}
		lo -= len(x)
	}
}

// readState returns the answer to an Ask, in the memory of b.
func (s *Server) readState(a message.Ask, b []byte) []byte {
	b = a.Append(b[:0])
	s.span(a.Lo, a.Count, func(x []float32) { b = append(b, bytesview.Bytes(x)...) })
	return b
}

func (s *Server) begin(a message.Ask, values []byte) error {
	s.mu.Lock()
	step, micros := s.step, s.figures.MicroBatches
	s.mu.Unlock()
	if step > 1 || micros > 0 {
		return fmt.Errorf("values to begin with came in step %d, after %d micro-batches: the job had begun", step, micros)
	}
	s.span(a.Lo, a.Count, func(x []float32) { values = values[copy(bytesview.Bytes(x), values):] })
	return nil
}
