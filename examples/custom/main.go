// Command custom is a user's own model, data and loop, whose strategy changes from step to step.
//
//	go build ./examples/custom && ./custom  # alone
//	ringo run --np 2 -- ./custom            # as two ranks
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/train"
)

func main() {
	if err := ringo.Run(context.Background(), ringo.Config{}, loop); err != nil {
		if !ringo.Told(err) { // else a launcher says it, once for all ranks
			fmt.Fprintln(os.Stderr, "custom:", err)
		}
		os.Exit(1)
	}
}

func signs(ps *nn.Params, _ model.Options) model.Model {
	hidden, out := ps.Dense("hidden", 2, 16), ps.Dense("out", 16, 2)
	forward := func(t *nn.Tape, b model.Batch) model.Outputs {
		return model.Outputs{t.Dense(t.Dense(b.Values, hidden, nn.ReLU), out, nn.Identity)}
	}
	return model.Model{Forward: forward, Loss: model.CrossEntropy}
}

// loop teaches two layers to see whether two numbers have the same sign.
func loop(job *ringo.Job) error {
	spec := model.Spec{Name: "signs", Input: []int{2}, Build: signs}
	l, err := train.NewLoop(job.Context(), job, spec, train.Config{Optimizer: "sgd", LR: 0.1, Momentum: 0.9})
	if err != nil {
		return err
	}
	class := map[bool]int32{true: 1} // of two numbers whose signs are the same
	strategies := map[int]distopt.Strategy{60: distopt.PartialUpdate, 120: distopt.DLGS, 200: distopt.FP16}
	batch, strategy, rnd := spec.Sample(32), distopt.FP32, rand.New(rand.NewPCG(2, uint64(job.Rank())))
	for step := range 300 {
		for i := range batch.N { // every rank draws samples of its own
			a, b := rnd.Float32()*2-1, rnd.Float32()*2-1
			batch.Values.Data[2*i], batch.Values.Data[2*i+1], batch.Labels[i] = a, b, class[a*b > 0]
		}
		if s, ok := strategies[step]; ok {
			strategy = s
		}
		pass, err := l.TrainOneBatch(batch, strategy, 0)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		if job.Rank() == 0 && step%50 == 49 {
			fmt.Printf("step %3d, rank 0 of %d, %s: loss %.4f\n", step+1, job.Size(), strategy, pass.Loss.Mean.Data[0])
		}
	}
	return l.Close()
}
