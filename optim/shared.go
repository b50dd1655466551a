package optim

import (
	"fmt"
	"sync"
)

// sharedLeast is the number of values that repays a second thread: below, an update is about as
// fast as waking a thread.
const sharedLeast = 64 << 10

// Shared is an optimizer that divides updates of large ranges over threads. The result does not
// depend on their number. Close ends the threads.
type Shared struct {
	RowOptimizer
	wake []chan struct{} // one per thread but the caller's
	done sync.WaitGroup

	lo            int
	params, grads []float32
	scale         float32
}

// NewShared lets threads, at least 1, share the updates of o.
func NewShared(o RowOptimizer, threads int) (*Shared, error) {
	if threads < 1 {
		return nil, fmt.Errorf("optim: %d threads: want at least 1", threads)
	}
	s := &Shared{RowOptimizer: o}
	for i := 1; i < threads; i++ {
		wake := make(chan struct{}, 1)
		s.wake = append(s.wake, wake)
		go func() {
			for range wake {
				s.part(i)
				s.done.Done()
			}
		}()
	}
	return s, nil
}

// Update is the optimizer's, cut at cache lines.
func (s *Shared) Update(lo int, params, grads []float32, gradScale float32) {
	if len(s.wake) == 0 || len(params) < sharedLeast {
		s.RowOptimizer.Update(lo, params, grads, gradScale)
		return
	}
	s.lo, s.params, s.grads, s.scale = lo, params, grads, gradScale
	s.done.Add(len(s.wake))
	for _, wake := range s.wake {
		wake <- struct{}{}
	}
	s.part(0)
	s.done.Wait()
	s.params, s.grads = nil, nil
}

// part updates share i of the range.
func (s *Shared) part(i int) {
	const line = 16
	n, parts := len(s.params), len(s.wake)+1
	lines := (n + line - 1) / line
	lo, hi := min(n, lines*i/parts*line), min(n, lines*(i+1)/parts*line)
	s.RowOptimizer.Update(s.lo+lo, s.params[lo:hi], s.grads[lo:hi], s.scale)
}

// Close ends the threads. The optimizer must not be used afterwards.
func (s *Shared) Close() {
	for _, wake := range s.wake {
		close(wake)
	}
	s.wake = nil
}
