package exchange_test

import (
	"context"
	"fmt"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/exchange"
)

// Each of two ranks sends one entry of four; both get the sum of all that was sent.
func ExampleNewGroupReducer() {
	err := ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) error {
		group, err := exchange.NewGroupReducer(job.Group(), exchange.Config{})
		if err != nil {
			return err
		}
		defer group.Close()
		sum := make([]float32, 4)
		op := &exchange.Request{X: sum, Sparse: &compress.Sparse{Len: 4, Index: []int32{int32(job.Rank())}, Value: []float32{float32(10 + job.Rank())}}}
		group.Start(op)
		if _, err := group.Wait(op); err != nil {
			return err
		}
		if job.Rank() == 0 {
			fmt.Println(sum)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [10 11 0 0]
}
