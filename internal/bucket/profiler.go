package bucket

import (
	"fmt"
	"slices"
	"time"
)

// Profiler records when backward has finished the gradient of each layer, and computes the backward
// times of a Profile from the last steps. The caller passes the times and uses a single goroutine.
// Steps allocate no memory.
//
// Calls in each step: Backward, Ready for each layer in any order, End. Times are since the step's
// start. NewProfiler sets the number of steps in the window.
type Profiler struct {
	layers int
	places int // kept steps and the current step
	steps  int // number of ended steps
	// ready[place*layers+layer] is the time at which the gradient of a layer was final, and
	// forward[place] the duration of forward, both without excluded time.
	ready    []time.Duration
	forward  []time.Duration
	excluded time.Duration // excluded time of this step
	marked   int           // layers ready in this step
	now      int           // place of the current step
}

// NewProfiler makes a profiler for a number of layers and of kept steps, at least one of each.
func NewProfiler(layers, steps int) (*Profiler, error) {
	if layers < 1 || steps < 1 {
		return nil, fmt.Errorf("bucket: a profiler of %d layers over %d steps: want at least 1 of each", layers, steps)
	}
	places := steps + 1
	p := &Profiler{layers: layers, places: places, ready: make([]time.Duration, layers*places), forward: make([]time.Duration, places)}
	p.begin()
	return p, nil
}

const notReady = time.Duration(-1)

func (p *Profiler) begin() {
	p.now, p.excluded, p.marked = p.steps%p.places, 0, 0
	p.forward[p.now] = 0
	for i := range p.layers {
		p.ready[p.now*p.layers+i] = notReady
	}
}

// Backward marks the start of backward. A step without the call has no forward.
func (p *Profiler) Backward(at time.Duration) { p.forward[p.now] = at }

// Exclude subtracts d, spent since backward's start on other work such as a selection, from the
// times of later layers.
func (p *Profiler) Exclude(d time.Duration) { p.excluded += d }

// Ready marks a layer's gradient as final.
func (p *Profiler) Ready(layer int, at time.Duration) error {
	if layer < 0 || layer >= p.layers {
		return fmt.Errorf("bucket: profiler: layer %d is ready, but there are layers 0 to %d", layer, p.layers-1)
	}
	r := &p.ready[p.now*p.layers+layer]
	if *r != notReady {
		return fmt.Errorf("bucket: profiler: layer %d is ready twice in one step", layer)
	}
	*r = max(0, at-p.excluded)
	p.marked++
	return nil
}

// End ends the step. A step with an unready layer is an error and does not count.
func (p *Profiler) End() error {
	missing := p.layers - p.marked
	if missing == 0 {
		p.steps++
	}
	p.begin()
	if missing > 0 {
		return fmt.Errorf("bucket: profiler: %d of %d layers were not ready when the step ended", missing, p.layers)
	}
	return nil
}

// Drop discards the current step.
func (p *Profiler) Drop() { p.begin() }

// Steps is the number of steps for the next Medians.
func (p *Profiler) Steps() int { return min(p.steps, p.places-1) }

// Medians returns, in seconds, the time to the start of backward, and for each layer i the growth,
// from layer i-1, of the median time at which layers 0 to i are all final. The growth is never
// negative, and all values add up to the median of the whole. Medians fails without a step.
func (p *Profiler) Medians() (forward float64, backward []float64, err error) {
	if p.steps == 0 {
		return 0, nil, fmt.Errorf("bucket: profiler: no step has ended")
	}
	latest := slices.Clone(p.forward) // time with all layers so far final, by place
	one := make([]time.Duration, 0, p.places)
	over := func() float64 {
		one = one[:0]
		for i, t := range latest {
			if i < p.steps && i != p.now {
				one = append(one, t)
			}
		}
		slices.Sort(one)
		return (one[(len(one)-1)/2] + one[len(one)/2]).Seconds() / 2
	}
	before := over()
	forward = before
	for l := range p.layers {
		for i := range latest {
			latest[i] = max(latest[i], p.ready[i*p.layers+l])
		}
		now := over()
		backward = append(backward, now-before)
		before = now
	}
	return forward, backward, nil
}
