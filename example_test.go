package ringo_test

import (
	"context"
	"fmt"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
)

// Three ranks, here goroutines of one process, each bring a gradient and leave
// with the mean. The same function given to Run trains in processes.
func ExampleLocal() {
	step := func(job *ringo.Job) error {
		gradient := []float32{float32(job.Rank()), 10 * float32(job.Rank())}
		if err := collective.AllReduce(job.Group(), gradient, collective.Mean); err != nil {
			return err
		}
		if job.Rank() == 0 {
			fmt.Println("mean over", job.Size(), "ranks:", gradient)
		}
		return nil
	}
	if err := ringo.Local(context.Background(), 3, ringo.Config{}, step); err != nil {
		fmt.Println(err)
	}
	// Output: mean over 3 ranks: [1 10]
}
