package bucket

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

// tell runs a step with layers ready at the given milliseconds.
func tell(t *testing.T, p *Profiler, forward int, ready ...int) {
	t.Helper()
	p.Backward(time.Duration(forward) * time.Millisecond)
	for l, at := range ready {
		if err := p.Ready(l, time.Duration(at)*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.End(); err != nil {
		t.Fatal(err)
	}
}

func medians(t *testing.T, p *Profiler) []float64 {
	t.Helper()
	forward, backward, err := p.Medians()
	if err != nil {
		t.Fatal(err)
	}
	out := []float64{}
	for _, x := range append([]float64{forward}, backward...) {
		out = append(out, float64(int(x*1e6+0.5))/1e3) // in ms, to the us
	}
	return out
}

func newTestProfiler(t *testing.T, layers, steps int) *Profiler {
	t.Helper()
	p, err := NewProfiler(layers, steps)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProfiler(t *testing.T) {
	p := newTestProfiler(t, 3, 3)
	if _, _, err := p.Medians(); err == nil {
		t.Error("medians of no step")
	}
	for _, c := range []struct {
		forward int
		ready   []int
		steps   int
		want    []float64 // forward, then by layer
	}{
		{10, []int{12, 15, 16}, 1, []float64{10, 2, 3, 1}},
		{20, []int{24, 25, 36}, 2, []float64{15, 3, 2, 6}},
		{11, []int{100, 101, 130}, 3, []float64{11, 13, 1, 11}}, // a single slow step leaves the median
		{12, []int{14, 14, 15}, 3, []float64{12, 12, 1, 11}},    // the first is forgotten
		{12, []int{13, 16, 15}, 3, []float64{12, 2, 2, 0}},      // order differs from the plan
	} {
		tell(t, p, c.forward, c.ready...)
		if got := medians(t, p); !reflect.DeepEqual(got, c.want) || p.Steps() != c.steps {
			t.Errorf("after %v: medians %v of %d steps, want %v of %d", c.ready, got, p.Steps(), c.want, c.steps)
		}
	}
}

// Excluded time is subtracted, and an unfinished step leaves no trace.
func TestProfilerAwayAndDrop(t *testing.T) {
	p := newTestProfiler(t, 2, 4)
	p.Backward(5 * time.Millisecond)
	if err := p.Ready(0, time.Second); err != nil {
		t.Fatal(err)
	}
	p.Exclude(time.Second)
	p.Drop()
	p.Backward(10 * time.Millisecond)
	_ = p.Ready(0, 12*time.Millisecond)
	p.Exclude(7 * time.Millisecond)
	_ = p.Ready(1, 22*time.Millisecond)
	if err := p.End(); err != nil {
		t.Fatal(err)
	}
	if got := medians(t, p); !reflect.DeepEqual(got, []float64{10, 2, 3}) {
		t.Errorf("medians %v", got)
	}
	if err := p.Ready(1, 0); err != nil {
		t.Error(err)
	}
	if err := p.End(); err == nil || !strings.Contains(err.Error(), "1 of 2 layers were not ready") {
		t.Errorf("a step without layer 0 ended with %v", err)
	}
	if got := medians(t, p); !reflect.DeepEqual(got, []float64{10, 2, 3}) {
		t.Errorf("medians %v after a step that does not count", got)
	}
}

func TestProfilerRefuses(t *testing.T) {
	for _, c := range [][2]int{{0, 1}, {1, 0}} {
		if _, err := NewProfiler(c[0], c[1]); err == nil {
			t.Errorf("NewProfiler(%v) was accepted", c)
		}
	}
	p := newTestProfiler(t, 2, 1)
	for _, l := range []int{-1, 2} {
		if err := p.Ready(l, 0); err == nil || !strings.Contains(err.Error(), "layers 0 to 1") {
			t.Errorf("Ready(%d) = %v", l, err)
		}
	}
	if p.Ready(0, 0) != nil || p.Ready(0, 0) == nil {
		t.Error("a layer may be ready once")
	}
}

// The sum of the medians is the median of the sums, and none is negative.
func TestProfilerMediansAddUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	for range 200 {
		layers, steps := 1+rng.IntN(9), 1+rng.IntN(9)
		p := newTestProfiler(t, layers, steps)
		for range steps + rng.IntN(5) {
			ready, at := make([]int, layers), rng.IntN(100)
			forward := at
			for l := range ready {
				at += rng.IntN(50)
				ready[l] = at
			}
			tell(t, p, forward, ready...)
		}
		_, backward, err := p.Medians()
		if err != nil {
			t.Fatal(err)
		}
		for l, b := range backward {
			if b < 0 {
				t.Fatalf("backward of layer %d takes %v", l, b)
			}
		}
	}
}

func TestProfilerAllocatesNothing(t *testing.T) {
	p := newTestProfiler(t, 3, 5)
	if n := testing.AllocsPerRun(100, func() {
		p.Backward(1)
		for l := range 3 {
			_ = p.Ready(l, time.Duration(l))
			p.Exclude(1)
		}
		_ = p.End()
	}); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}
