// Command custom is a user's own model, data and loop: a plain optimizer,
// wrapped by DistOpt, whose strategy changes from step to step.
//
//	go build ./examples/custom && ./custom  # alone
//	ringo run --np 2 -- ./custom            # as two ranks
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/bucket"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
)

func main() {
	if err := ringo.Run(context.Background(), ringo.Config{}, train); err != nil {
		if !ringo.Told(err) { // else a launcher says it, once for all ranks
			fmt.Fprintln(os.Stderr, "custom:", err)
		}
		os.Exit(1)
	}
}

// train teaches two layers to see whether two numbers have the same sign.
func train(job *ringo.Job) error {
	params := nn.NewParams(1)
	hidden, out := params.Dense("hidden", 2, 16), params.Dense("out", 16, 2)
	x, labels := nn.NewTensor(32, 2), make([]int32, 32)
	forward := func(t *nn.Tape) *nn.Tensor {
		h := t.Dense(x, hidden, nn.ReLU)
		loss, _ := t.SoftmaxCrossEntropy(t.Dense(h, out, nn.Identity), labels)
		return loss
	}
	params.ArenasFrom(job.Alloc) // where ranks of a host share memory, all lies there until the job ends
	if err := params.Arrange(forward); err != nil {
		return err
	}
	var layers []bucket.Layer
	for _, s := range params.Slots() { // in the order backward finishes them
		layers = append(layers, bucket.Layer{Name: s.Name, Offset: s.Offset, Len: s.Padded, Pad: s.Padded - s.Len})
	}
	opt, err := distopt.New(job.Group(), &optim.SGD{LR: 0.1, Momentum: 0.9}, layers, params.Values(), params.Grads(), nil, distopt.Config{})
	if err != nil {
		return err
	}
	if err := opt.Broadcast(); err != nil { // all begin with rank 0's parameters
		return err
	}
	class := map[bool]int32{true: 1} // of two numbers whose signs are the same
	strategy := map[int]distopt.Strategy{60: distopt.PartialUpdate, 120: distopt.DLGS, 200: distopt.FP16}
	tape, rnd := nn.NewTape(nn.TapeConfig{}), rand.New(rand.NewPCG(2, uint64(job.Rank())))
	for step := range 300 {
		for i := range labels { // every rank draws samples of its own
			a, b := rnd.Float32()*2-1, rnd.Float32()*2-1
			x.Data[2*i], x.Data[2*i+1], labels[i] = a, b, class[a*b > 0]
		}
		if s, ok := strategy[step]; ok {
			if err := opt.SetStrategy(s); err != nil {
				return err
			}
		}
		tape.Reset()
		loss := forward(tape)
		tape.Backward(loss, opt.GradReady) // buckets leave while backward goes on
		if err := opt.Step(); err != nil {
			return err
		}
		if job.Rank() == 0 && step%50 == 49 {
			fmt.Printf("step %3d, rank 0 of %d, %s: loss %.4f\n", step+1, job.Size(), opt.Strategy(), loss.Data[0])
		}
	}
	return opt.Close()
}
