package bucket

import (
	"math"
	"testing"
)

func TestDrift(t *testing.T) {
	planned := Step{Forward: 2, Backward: []float64{1, 4, 1}}
	for _, c := range []struct {
		measured Step
		want     float64
	}{
		{planned, 0},
		{Step{Forward: 4, Backward: []float64{2, 8, 2}}, 1},        // all twice as slow
		{Step{Forward: 2, Backward: []float64{1, 2, 3}}, 0.25},     // equal sum, an earlier gradient
		{Step{Forward: 1, Backward: []float64{2, 4, 1}}, 0.125},    // earlier backward
		{Step{Forward: 2, Backward: []float64{1, 4}}, math.Inf(1)}, // different layers
	} {
		if got := Drift(planned, c.measured); got != c.want {
			t.Errorf("%+v has drifted by %v, want %v", c.measured, got, c.want)
		}
	}
	if got := Drift(Step{Backward: []float64{0}}, Step{Backward: []float64{1}}); !math.IsInf(got, 1) {
		t.Errorf("from nothing to something is a drift of %v", got)
	}
	if got := Drift(Step{}, Step{}); got != 0 {
		t.Errorf("from nothing to nothing is a drift of %v", got)
	}
}
