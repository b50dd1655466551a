package main

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/train"
)

// syntheticStep took so many milliseconds in all, with a tenth each for update and
// compression, three tenths exposed.
func syntheticStep(whole float64, kind train.StepKind) train.StepTime {
	of := func(share float64) time.Duration {
		return time.Duration(share * whole * float64(time.Millisecond))
	}
	return train.StepTime{Whole: of(1), Compute: of(0.5), Kind: kind,
		StepTimes: distopt.StepTimes{Compress: of(0.1), Exposed: of(0.3), Update: of(0.1), BytesSent: 1000, Density: 0.25}}
}

// The parts of a step add up to the median, however long a few steps took.
func TestBreakDownAddsUp(t *testing.T) {
	for _, c := range []struct {
		steps []float64
		want  float64 // ms
	}{
		{[]float64{10}, 10},
		{[]float64{10, 20}, 15},
		{[]float64{10, 1000, 12}, 12},
		{[]float64{10, 10.2, 9.9, 5000, 10.1, 3, 10, 10}, 10},
		{[]float64{10, 10.05, 9.96, 400, 410, 420, 430}, 400}, // a machine that others use, too
		{[]float64{10, 10, 10, 400, 400, 400}, 205},
	} {
		times := newStepTimes(len(c.steps))
		for _, s := range c.steps {
			times.add(syntheticStep(s, train.OtherStep))
		}
		b := times.breakDown()
		sum := b.ComputeMS + b.CompressMS + b.ExposedCommMS + b.UpdateMS
		m := median(times.parts[wholePart])
		if math.Abs(sum-m) > 0.01*m || math.Abs(sum-c.want) > 0.01*c.want || math.Abs(b.ExposedCommMS-0.3*sum) > 1e-6*sum || b.Density != 0.25 {
			t.Errorf("steps of %v ms: %+v, sum %v, median %v, want %v", c.steps, b, sum, m, c.want)
		}
	}
}

func TestExactAndReuseStepsApart(t *testing.T) {
	times := newStepTimes(4)
	times.add(syntheticStep(30, train.ExactStep))
	times.add(syntheticStep(10, train.ReuseStep))
	times.add(syntheticStep(12, train.ReuseStep))
	times.add(syntheticStep(20, train.OtherStep))
	if b := times.breakDown(); b.StepExactMS.Value != 30 || b.StepReuseMS.Value != 11 {
		t.Errorf("%+v, want 30 and 11 ms", b)
	}
	dense := newStepTimes(1)
	dense.add(syntheticStep(30, train.OtherStep))
	if b := dense.breakDown(); b.StepExactMS.Known || b.StepReuseMS.Known {
		t.Errorf("a strategy that reuses nothing has %+v", b)
	}
}

// Each step is that of the rank that took longest for it, as a whole.
func TestTimesOfTheSlowestRank(t *testing.T) {
	steps := [3][]float64{{10, 40, 10}, {20, 30, 10}, {15, 10, 50}} // by rank
	err := ringo.Local(context.Background(), 3, ringo.Config{}, func(job *ringo.Job) error {
		times := newStepTimes(3)
		for _, s := range steps[job.Rank()] {
			one := syntheticStep(s, train.OtherStep)
			one.BytesSent = int64(100 * job.Rank())
			times.add(one)
		}
		if err := times.ofSlowest(job.Group()); err != nil {
			return err
		}
		for i, want := range []float64{20, 40, 50} {
			if times.parts[wholePart][i] != want || math.Abs(times.parts[computePart][i]-want/2) > 1e-6 {
				return fmt.Errorf("step %d: %v ms with %v of computing, want %v and half of it", i, times.parts[wholePart][i], times.parts[computePart][i], want)
			}
		}
		if times.bytes != 300 || times.density != 0.75 {
			return fmt.Errorf("%v bytes and density %v over all steps, want 300 and 0.75", times.bytes, times.density)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
