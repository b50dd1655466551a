// Command custom has a custom model, optimizer and loop: distopt wraps the optimizer, and changes
// strategies. train.Config.CustomOptimizer takes the same optimizer for the loops of package train.
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
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/nn"
)

func main() {
	if err := ringo.Run(context.Background(), ringo.Config{}, loop); err != nil {
		if !ringo.Reported(err) { // reported once for all ranks by the launcher otherwise
			fmt.Fprintln(os.Stderr, "custom:", err)
		}
		os.Exit(1)
	}
}

// loop trains two layers to decide whether two numbers have the same sign.
func loop(job *ringo.Job) (err error) {
	ps := nn.NewParams(1)
	hidden, out := ps.Dense("hidden", 2, 16), ps.Dense("out", 16, 2)
	x, labels := nn.NewTensor(32, 2), make([]int32, 32)
	forward := func(t *nn.Tape) *nn.Tensor {
		loss, _, _ := t.CrossEntropy(t.Dense(t.Dense(x, hidden, nn.ReLU), out, nn.Identity), labels, nn.CrossEntropy{})
		return loss
	}
	if err := ps.Arrange(forward); err != nil { // one arena for all parameters, in the order of final gradients
		return err
	}
	var layers []bucket.Param
	for _, s := range ps.Slots() {
		layers = append(layers, bucket.Param{Name: s.Name, Offset: s.Offset, Len: s.Padded, Pad: s.Padded - s.Len, Shape: s.Shape})
	}
	opt, err := distopt.New(job.Group(), &lion{rate: 0.01}, layers, ps.Values(), ps.Grads(), nil, distopt.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opt.Close()) }()
	if err := opt.Broadcast(); err != nil { // parameters of rank 0
		return err
	}
	tape := nn.NewTape(nn.TapeConfig{Threads: 1})
	defer tape.Close()
	strategies := map[int]distopt.Strategy{60: distopt.PartialUpdate, 120: distopt.DLGS, 200: distopt.FP16}
	class, rnd := map[bool]int32{true: 1}, rand.New(rand.NewPCG(2, uint64(job.Rank())))
	for step := range 300 {
		for i := range labels { // each rank draws different samples
			a, b := rnd.Float32()*2-1, rnd.Float32()*2-1
			x.Data[2*i], x.Data[2*i+1], labels[i] = a, b, class[a*b > 0]
		}
		if s, ok := strategies[step]; ok {
			if err := opt.SetStrategy(s); err != nil {
				return err
			}
		}
		tape.Reset()
		loss := forward(tape)
		tape.Backward(loss, opt.GradReady) // each complete bucket is exchanged immediately
		if err := opt.Step(); err != nil {
			return err
		}
		if job.Rank() == 0 && step%50 == 49 {
			fmt.Printf("step %3d, rank 0 of %d, %s: loss %.4f\n", step+1, job.Size(), opt.Strategy(), loss.Data[0])
		}
	}
	return nil
}
