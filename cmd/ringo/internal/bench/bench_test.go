package bench

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo"
)

func TestMean(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		mean float64
	}{{[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 2}, 4}} {
		if got := Mean(c.x); got != c.mean {
			t.Errorf("mean of %v is %v, want %v", c.x, got, c.mean)
		}
	}
}

// Each time is that of the rank that took longest for it.
func TestSlowest(t *testing.T) {
	own := [][]float64{{1, 9, 3}, {4, 2, 3}}
	err := ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) error {
		got, err := Slowest(job.Group(), own[job.Rank()])
		if err == nil && !slices.Equal(got, []float64{4, 9, 3}) {
			err = fmt.Errorf("rank %d has %v", job.Rank(), got)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
