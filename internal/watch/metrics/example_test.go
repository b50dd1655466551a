package metrics_test

import (
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/metrics"
)

// A program with a loop of its own tells its steps, as job.Metrics().Step(…); here are figures of no job.
func Example() {
	figures := metrics.New(0, 1) // rank 0 of 1
	for range 3 {
		figures.Step(metrics.Step{Whole: 20 * time.Millisecond, Samples: 64, Epoch: 1, Loss: 0.5, Density: 1})
	}
	for _, v := range figures.Values() {
		if v.ID == metrics.Samples || v.ID == metrics.StepDuration {
			fmt.Printf("%s %.4g\n", v.ID.Row().Name, v.Value)
		}
	}
	// Output:
	// ringo_step_duration_seconds 0.06
	// ringo_samples_total 192
}
