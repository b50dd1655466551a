// Command distopt trains MNIST as the text of DistOpt does: ringo run --np 2 -- ./distopt DIR topk
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/train"
)

var options = map[string]distopt.Config{ // Spars is the share, or the smallest magnitude, that is sent
	"fp32": {Strategy: distopt.FP32}, "fp16": {Strategy: distopt.FP16}, "partial": {Strategy: distopt.PartialUpdate},
	"topk": {Strategy: distopt.SparseTopK, Spars: 0.05}, "threshold": {Strategy: distopt.SparseThreshold, Spars: 0.001}}

func mnist(job *ringo.Job, files data.Config, option distopt.Config, epochs int) error {
	spec, err := models.Lookup("mnist") // 1: the model, a CNN
	set, missing := data.Open("mnist", files)
	if err = errors.Join(err, missing); err != nil {
		return err
	}
	sgd := &optim.SGD{LR: 0.005, Momentum: 0.9, WeightDecay: 1e-5} // 2: an optimizer, wrapped by DistOpt
	loop, err := train.NewLoop(job.Context(), job, spec, train.Config{CustomOptimizer: sgd, Seed: 1, Exchange: option})
	if err != nil {
		return err
	}
	per, idx, batch := set.Train.Len()/job.Size(), make([]int32, 64), data.Batch{} // 3: rank r has samples r*per to (r+1)*per-1
	err = loop.Replica().Opt.Broadcast()                                           // 4: the parameters of rank 0
	for step := 0; err == nil && step < epochs*(per/64); step++ {
		for i := range idx {
			idx[i] = int32(job.Rank()*per + step%(per/64)*64 + i)
		}
		if err = set.Train.Fill(&batch, idx, data.Draw{}); err == nil { // 5: the loop, with an option for each step
			_, err = loop.TrainOneBatch(loop.Replica().Batch(&batch), option.Strategy, option.Spars)
		}
	}
	if err != nil {
		return errors.Join(err, loop.Close())
	}
	e, err := loop.Evaluate(set)
	fmt.Printf("rank %d of %d, %s, epoch %d: test accuracy %.4f\n", job.Rank(), job.Size(), loop.Replica().Opt.Strategy(), epochs, e.Figures["accuracy"])
	return errors.Join(err, loop.Close())
}

func main() {
	err := errors.New("want a folder of MNIST, and one of fp32, fp16, partial, topk, threshold")
	if len(os.Args) == 3 && options[os.Args[2]].Strategy != "" {
		err = ringo.Run(context.Background(), ringo.Config{}, func(job *ringo.Job) error { return mnist(job, data.Config{Dir: os.Args[1]}, options[os.Args[2]], 10) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "distopt:", err)
		os.Exit(1)
	}
}
