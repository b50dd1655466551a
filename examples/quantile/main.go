// Command quantile predicts three quantiles of a number with its own layer, loss and loop.
//
//	go build ./examples/quantile && ringo run --np 2 -- ./quantile
package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/train"
)

var quantiles = [3]float32{0.1, 0.5, 0.9}

// ordered is a layer of columns that grow from left to right: the first is x's, and each other one
// is exp(x) above its predecessor.
func ordered(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
	steps := t.Map("exp of all columns but the first", x, func(i int, v float32) (y, slope float32) {
		if i%3 == 0 {
			return v, 1
		}
		e := float32(math.Exp(float64(v)))
		return e, e
	})
	sums := &nn.Tensor{Shape: []int{3, 3}, Data: []float32{1, 1, 1, 0, 1, 1, 0, 0, 1}} // column k adds up columns 0 to k
	return t.MatMul(steps, sums, nn.MatMul{})
}

// pinball is the loss of quantiles q of the targets: q·d above the prediction, at a distance d, and
// (1-q)·d below it (Koenker and Bassett, 1978).
func pinball(t *nn.Tape, b model.Batch, out model.Outputs) model.Loss {
	return model.MeanLoss(t, t.Map("pinball", out[0], func(i int, x float32) (loss, slope float32) {
		d, q := b.Targets[i/3]-x, quantiles[i%3]
		if d < 0 {
			q--
		}
		return q * d, -q
	}))
}

func build(ps *nn.Params, _ model.Options) model.Model {
	hidden, out := ps.Dense("hidden", 1, 16), ps.Dense("out", 16, 3)
	return model.Model{Loss: pinball, Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
		return model.Outputs{ordered(t, t.Dense(t.Dense(b.Values, hidden, nn.Tanh), out, nn.Identity))}
	}}
}

// loop trains on numbers with a spread that grows with x, and prints the shares of targets below.
func loop(job *ringo.Job) (err error) {
	l, err := train.NewLoop(job.Context(), job, model.Spec{Name: "quantile", Input: []int{1}, Targets: 1, Build: build}, train.Config{Optimizer: "adam", LR: 0.01})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	b, below := model.Batch{N: 256, Values: nn.NewTensor(256, 1), Targets: make([]float32, 256)}, [3]float64{}
	r := rand.New(rand.NewPCG(1, uint64(job.Rank()))) // each rank draws different samples
	for step := range 1000 {
		for i := range b.Targets {
			x := r.Float32()
			b.Values.Data[i], b.Targets[i] = x, x+(0.1+x)*float32(r.NormFloat64())
		}
		pass, err := l.TrainOneBatch(b, "", 0)
		if err != nil {
			return err
		}
		for i, q := range pass.Outputs[0].Data {
			if step >= 800 && b.Targets[i/3] < q {
				below[i%3] += 1. / 200 / 256
			}
		}
	}
	if job.Rank() == 0 {
		fmt.Printf("%d ranks, %v: below them %.3f of the targets\n", job.Size(), quantiles, below)
	}
	return nil
}

func main() {
	if err := ringo.Run(context.Background(), ringo.Config{}, loop); err != nil {
		fmt.Fprintln(os.Stderr, "quantile:", err)
		os.Exit(1)
	}
}
