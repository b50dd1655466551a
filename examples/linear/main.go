// Command linear fits a line to points: a custom model with custom data. With a folder as argument,
// a killed run resumes with identical results.
//
//	go build ./examples/linear && ringo run --np 2 -- ./linear DIR
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

func line(ps *nn.Params, o model.Options) model.Model {
	fc := ps.Dense("line", o.Input[0], o.Targets)
	return model.Model{
		Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
			return model.Outputs{t.Dense(b.Values, fc, nn.Identity)}
		},
		Loss: model.Squared, Metrics: []model.Metric{model.MAE(), model.R2()},
	}
}

func run(job *ringo.Job) error {
	all := data.Batch{N: 2000}
	for i := range all.N {
		x := float32(i*7919%2000)/1000 - 1
		all.Values, all.Targets = append(all.Values, x), append(all.Targets, 3*x+2)
	}
	src, err := data.FromBatch(data.Shape{Values: []int{1}, Targets: 1}, all)
	if err != nil {
		return err
	}
	set := &data.Dataset{Name: "line"}
	if set.Train, set.Eval, err = data.Split(src, 0.2); err != nil {
		return err
	}
	cfg := train.Config{Batch: 10, Epochs: 20, LR: 0.01, Momentum: 0.9}
	cfg.Checkpoint = train.Checkpoint{Dir: os.Args[1], Every: 25, Resume: true}
	sum, err := train.Run(job.Context(), job, model.Spec{Name: "line", Build: line}, set, cfg)
	if err == nil && job.Rank() == 0 {
		fmt.Printf("R² %.6f, parameters sha256 %s\n", sum.Eval["r2"], sum.ParamsSHA256)
	}
	return err
}

func main() {
	if err := ringo.Run(context.Background(), ringo.Config{}, run); err != nil {
		fmt.Fprintln(os.Stderr, "linear:", err)
		os.Exit(1)
	}
}
