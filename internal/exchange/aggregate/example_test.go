package aggregate_test

import (
	"context"
	"fmt"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/exchange/aggregate"
)

// Two ranks have their gradients summed by two servers, each of which has a part of them.
func ExampleClient() {
	err := ringo.Local(context.Background(), 2, ringo.Config{Servers: 2}, func(job *ringo.Job) error {
		servers, ok := job.Reducer().(*aggregate.Client)
		if !ok {
			return fmt.Errorf("rank %d has %T", job.Rank(), job.Reducer())
		}
		op := &exchange.Request{X: []float32{1, float32(job.Rank())}}
		servers.Start(op)
		if _, err := servers.Wait(op); err != nil {
			return err
		}
		if job.Rank() == 0 {
			fmt.Println(op.X)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [2 1]
}
