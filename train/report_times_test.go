package train

import (
	"math"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/distopt"
)

const ms = time.Millisecond

// made is a step of synthetic times: what backward took without codecs, the wait
// for data in it, and what the optimizer says of itself.
func made(w *StepTimer, clock *time.Time, compute, data time.Duration, t distopt.StepTimes) StepTimes {
	w.Waited(data)
	*clock = clock.Add(compute + t.Compress)
	w.Ready(*clock)
	*clock = clock.Add(t.Exposed + t.Update)
	return w.End(*clock, t)
}

func TestPartsOfAStepAddUp(t *testing.T) {
	clock := time.Now()
	var w StepTimer
	w.Begin(clock)
	for i, c := range []struct {
		compute, data time.Duration
		times         distopt.StepTimes
	}{
		{70 * ms, 5 * ms, distopt.StepTimes{Compress: 9 * ms, Exposed: 30 * ms, Update: 4 * ms, BytesSent: 100, Density: 0.01}},
		{70 * ms, 0, distopt.StepTimes{Exposed: 300 * ms, Update: 1}},
		{0, 0, distopt.StepTimes{}},
	} {
		began := clock
		s := made(&w, &clock, c.compute, c.data, c.times)
		if s.Whole != clock.Sub(began) || s.Compute+s.Compress+s.Exposed+s.Update != s.Whole {
			t.Errorf("step %d took %v, is said to be %v, and its parts %v", i, clock.Sub(began), s.Whole, s.Compute+s.Compress+s.Exposed+s.Update)
		}
		if s.Compute != c.compute || s.Data != c.data || s.StepTimes != c.times {
			t.Errorf("step %d is %+v, want %+v", i, s, c)
		}
	}
}

// What is between two steps is the next one's, and a pause is nobody's.
func TestWatchOfStepsInARow(t *testing.T) {
	clock := time.Now()
	var w StepTimer
	w.Begin(clock)
	made(&w, &clock, 10*ms, 0, distopt.StepTimes{Update: ms})
	clock = clock.Add(3 * ms)
	if s := made(&w, &clock, 10*ms, 0, distopt.StepTimes{Update: ms}); s.Compute != 13*ms {
		t.Errorf("compute %v, want 13ms", s.Compute)
	}
	clock = clock.Add(time.Hour)
	w.Begin(clock)
	if s := made(&w, &clock, 10*ms, 0, distopt.StepTimes{Update: ms}); s.Whole != 11*ms {
		t.Errorf("a step after a pause took %v, want 11ms", s.Whole)
	}
}

func TestBreakDownOfAnEpoch(t *testing.T) {
	step := func(whole, compute time.Duration, kind StepKind) StepTimes {
		s := StepTimes{Whole: whole, Compute: compute, Data: 2 * ms, Kind: kind}
		s.Compress, s.Exposed, s.Update = 5*ms, 20*ms, 10*ms
		s.BytesSent, s.Density = 600, 0.1
		return s
	}
	var all stepTotals
	for range 2 { // as many ranks
		var s stepTotals
		s.add(step(75*ms, 40*ms, ExactStep))
		s.add(step(65*ms, 30*ms, ReuseStep))
		s.add(step(55*ms, 20*ms, ReuseStep))
		s.add(step(65*ms, 30*ms, OtherStep))
		for i, v := range s.values() {
			*all.values()[i] += *v
		}
	}
	got, known := all.breakDown(), func(v float64) OptionalFloat { return OptionalFloat{Value: v, Known: true} }
	want := BreakDown{ComputeMS: 30, CompressMS: 5, ExposedCommMS: 20, UpdateMS: 10, Density: 0.1, StepExactMS: known(75), StepReuseMS: known(60)}
	near := func(name string, got, want float64) {
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s %v, want %v", name, got, want)
		}
	}
	near("compute", got.ComputeMS, want.ComputeMS)
	near("compress", got.CompressMS, want.CompressMS)
	near("exposed", got.ExposedCommMS, want.ExposedCommMS)
	near("update", got.UpdateMS, want.UpdateMS)
	near("density", got.Density, want.Density)
	near("exact", got.StepExactMS.Value, 75)
	near("reuse", got.StepReuseMS.Value, 60)
	near("bytes", all.bytes/all.steps, 600)
	near("data", 1000*all.data/all.steps, 2)
	near("the sum of the parts", got.ComputeMS+got.CompressMS+got.ExposedCommMS+got.UpdateMS, 65)
	var dense stepTotals
	dense.add(step(75*ms, 40*ms, OtherStep))
	if b := dense.breakDown(); b.StepExactMS.Known || b.StepReuseMS.Known {
		t.Errorf("a strategy that reuses nothing has %+v", b)
	}
}

func TestMedianStep(t *testing.T) {
	for _, c := range []struct {
		steps []float64
		want  float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 2}, 2}} {
		if got := (&reports{stepS: c.steps}).medianStep(); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.steps, got, c.want)
		}
	}
}

func TestKindsOfSteps(t *testing.T) {
	for _, c := range []struct {
		times distopt.StepTimes
		want  StepKind
	}{
		{distopt.StepTimes{}, OtherStep},
		{distopt.StepTimes{Reuses: true}, ReuseStep},
		{distopt.StepTimes{Reuses: true, ExactShare: 0.1}, ReuseStep},
		{distopt.StepTimes{Reuses: true, ExactShare: 0.5}, OtherStep},
		{distopt.StepTimes{Reuses: true, ExactShare: 1}, ExactStep},
	} {
		if got := kindOf(c.times); got != c.want {
			t.Errorf("%+v is of kind %d, want %d", c.times, got, c.want)
		}
	}
}
