package distopt_test

import (
	"context"
	"fmt"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/optim"
)

// A chain of one's own: the two ranks send the largest half of their gradients,
// rounded; what they keep is sent later, at the latest when the strategy changes to
// one that keeps nothing.
func ExampleOptimizer_SetStrategy() {
	chain, err := compress.NewChain(compress.Clip{Max: 4}, compress.TopK{Ratio: 0.5}, compress.BF16{})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) error {
		params, grads := make([]float32, 4), make([]float32, 4)
		layers := []bucket.Param{{Name: "weight", Len: 4}}
		opt, err := distopt.New(job.Group(), &optim.SGD{LR: 1}, layers, params, grads, nil, distopt.Config{Chain: chain})
		if err != nil {
			return err
		}
		step := func(g ...float32) error { // stands for a backward
			copy(grads, g)
			opt.GradReady(0)
			err := opt.Step()
			if job.Rank() == 0 {
				fmt.Println(opt.Strategy(), params)
			}
			return err
		}
		if err := step(9, 1, -2, 0.5); err != nil {
			return err
		}
		if err := opt.SetStrategy(distopt.FP32); err != nil {
			return err
		}
		if err := step(0, 0, 0, 0); err != nil {
			return err
		}
		return opt.Close()
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// custom [-4 0 2 0]
	// fp32 [-4 -1 2 -0.5]
}
