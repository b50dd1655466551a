package bucket

import (
	"fmt"
	"slices"
	"time"
)

// Profiler collects when each layer's gradient is final, over some steps, and
// turns that into the backward times of a Profile. It is told the time and
// reads no clock, is used by one goroutine, and allocates nothing in a step.
//
// In each step: Backward, then Ready for each layer in any order, then End.
// Times are since the step's start. Of more steps than it keeps, the last count.
type Profiler struct {
	layers int
	places int // for the steps that are kept and the one under way
	steps  int // that ended
	// ready is, by place and layer, when it was final, with the time away taken
	// off; forward is by place.
	ready    []time.Duration
	forward  []time.Duration
	excluded time.Duration // in this step
	marked   int           // layers of this step
	now      int           // this step's place
}

// NewProfiler makes a profiler for that many layers that keeps so many steps, at
// least one of each.
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

// Backward says that backward began. A step in which it is not called has no
// forward.
func (p *Profiler) Backward(at time.Duration) { p.forward[p.now] = at }

// Exclude says that so much of the time since backward began went into something
// else, such as selecting what to send; the layers that are ready from now on
// are so much earlier.
func (p *Profiler) Exclude(d time.Duration) { p.excluded += d }

// Ready says that a layer's gradient is final.
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

// End ends the step. One in which a layer was not ready is an error and does
// not count.
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

// Drop forgets the step under way.
func (p *Profiler) Drop() { p.begin() }

// Steps is how many steps the next Medians are over.
func (p *Profiler) Steps() int { return min(p.steps, p.places-1) }

// Medians are the time to the start of backward and, by layer, from the gradient
// before to this one, in seconds. They are differences of the medians over steps
// of the times at which layers 0 to i are all final: those never fall, and the
// sum is the median of the whole. Without a step there are none.
func (p *Profiler) Medians() (forward float64, backward []float64, err error) {
	if p.steps == 0 {
		return 0, nil, fmt.Errorf("bucket: profiler: no step has ended")
	}
	latest := slices.Clone(p.forward) // by place: when all layers so far are final
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
