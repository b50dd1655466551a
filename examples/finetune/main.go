// Command finetune learns a task from few samples on trained layers, and resumes from DIR.
//
//	go build ./examples/finetune && ringo run --np 2 -- ./finetune DIR
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/train"
)

func network(ps *nn.Params, o model.Options) model.Model {
	one, two, head := ps.Dense("body.one", 2, 48), ps.Dense("body.two", 48, 48), ps.Dense("head", 48, o.Classes)
	return model.Model{Loss: model.CrossEntropy, Metrics: []model.Metric{model.Accuracy()}, Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
		return model.Outputs{t.Dense(t.Dense(t.Dense(b.Values, one, nn.ReLU), two, nn.ReLU), head, nn.Identity)}
	}}
}

func learn(job *ringo.Job, samples, classes int, cfg train.Config) error {
	all, set := data.Batch{N: samples}, &data.Dataset{Name: "fields", Classes: classes}
	for i := range samples { // points of a square; classes are its eight fields, or alternating columns
		x, y := float32(i*7919%1009)/1009, float32(i*104729%1013)/1013
		all.Values, all.Labels = append(all.Values, 2*x-1, 2*y-1), append(all.Labels, int32(int(4*x)+4*int(2*y))%int32(classes))
	}
	src, err := data.FromBatch(data.Shape{Values: []int{2}, Labels: 1}, all)
	if err == nil {
		set.Train, set.Eval, err = data.Split(src, 0.25)
	}
	if err != nil {
		return err
	}
	sum, err := train.Run(job.Context(), job, model.Spec{Name: "fields", Build: network}, set, cfg)
	if err == nil && job.Rank() == 0 {
		fmt.Printf("%d classes: accuracy %.3f, parameters sha256 %s\n", classes, sum.Eval["accuracy"], sum.ParamsSHA256)
	}
	return err
}

func run(job *ringo.Job) error {
	cfg := train.Config{Batch: 20, Epochs: 20, LR: 0.1, Momentum: 0.9, Checkpoint: train.Checkpoint{Dir: os.Args[1] + "/eight", Every: 60, Resume: true}}
	if err := learn(job, 3000, 8, cfg); err != nil { // many samples of eight classes
		return err
	}
	cfg.Start, cfg.Checkpoint.Dir = train.Init{From: cfg.Checkpoint.Dir, Except: []string{"head.*"}, Freeze: []string{"body.*"}}, os.Args[1]+"/two"
	return learn(job, 400, 2, cfg) // few samples of two
}

func main() {
	if err := ringo.Run(context.Background(), ringo.Config{}, run); err != nil {
		fmt.Fprintln(os.Stderr, "finetune:", err)
		os.Exit(1)
	}
}
