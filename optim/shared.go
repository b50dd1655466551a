package optim

import (
	"fmt"
	"sort"
	"sync"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// sharedLeast is the number of values from which a second thread is worth its cost: a smaller
// update takes about as long as waking a thread.
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

// Update divides the optimizer's Update over the threads, at cache lines.
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

// Rate is a range of the arena, values Lo to Hi-1, with the optimizer's learning rate times Factor.
type Rate struct {
	Lo, Hi int
	Factor float64 // positive
}

// Grouped is an optimizer with separate learning rates for ranges of its arena, and otherwise
// unchanged; a factor of 1 gives the same bits. A decay multiplied by the rate scales with the
// factor, as in PyTorch's parameter groups. Tables have the optimizer's rate.
type Grouped struct {
	RowOptimizer
	rates []Rate
	rated rated
}

// rated has updateBy, which is Update with the learning rate multiplied by factor.
type rated interface {
	updateBy(factor float64, lo int, params, grads []float32, gradScale float32)
}

// NewGrouped sets rates for ranges of o's arena; other values have the factor 1. It is an error if
// the ranges are not ascending and disjoint, if a factor is not positive, or if o is not an
// optimizer of this package.
func NewGrouped(o RowOptimizer, rates []Rate) (*Grouped, error) {
	r, ok := o.(rated)
	if !ok {
		return nil, fmt.Errorf("optim: %s cannot update at rates by range", o.Name())
	}
	at := 0
	for i, g := range rates {
		if g.Lo < at || g.Hi <= g.Lo || !(g.Factor > 0) || g.Factor-g.Factor != 0 {
			return nil, fmt.Errorf("optim: rate %d is %s of values %d to %d: want a positive factor, and a range that begins at %d or later", i, quantity.Exact(g.Factor), g.Lo, g.Hi, at)
		}
		at = g.Hi
	}
	return &Grouped{RowOptimizer: o, rates: rates, rated: r}, nil
}

// Update updates each range at its rate.
func (g *Grouped) Update(lo int, params, grads []float32, gradScale float32) {
	for at := 0; at < len(params); {
		n, factor := g.stretch(lo + at)
		end := min(len(params), at+n)
		if factor == 1 {
			g.RowOptimizer.Update(lo+at, params[at:end], grads[at:end], gradScale)
		} else {
			g.rated.updateBy(factor, lo+at, params[at:end], grads[at:end], gradScale)
		}
		at = end
	}
}

// stretch returns the number of values from at on with the same factor, and the factor. Cost:
// logarithmic in the number of ranges.
func (g *Grouped) stretch(at int) (n int, factor float64) {
	i := sort.Search(len(g.rates), func(i int) bool { return g.rates[i].Hi > at })
	switch {
	case i == len(g.rates):
		return int(^uint(0)>>1) - at, 1
	case at < g.rates[i].Lo:
		return g.rates[i].Lo - at, 1
	}
	return g.rates[i].Hi - at, g.rates[i].Factor
}

func (s *SGD) updateBy(factor float64, lo int, params, grads []float32, gradScale float32) {
	c := *s
	c.LR *= factor
	c.Update(lo, params, grads, gradScale)
}

func (a *Adagrad) updateBy(factor float64, lo int, params, grads []float32, gradScale float32) {
	c := *a
	c.LR *= factor
	c.Update(lo, params, grads, gradScale)
}

func (o *FTRL) updateBy(factor float64, lo int, params, grads []float32, gradScale float32) {
	c := *o
	c.LR *= factor
	c.Update(lo, params, grads, gradScale)
}

func (a *AdamW) updateBy(factor float64, lo int, params, grads []float32, gradScale float32) {
	c := *a
	c.LR *= factor
	c.factors = c.factorsOf(c.steps())
	c.Update(lo, params, grads, gradScale)
}
