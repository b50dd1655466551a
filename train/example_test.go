package train_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/train"
)

// line is a model of one's own: y = ax + b.
func line() model.Spec {
	return model.Spec{Name: "line", Input: []int{1}, Targets: 1, Build: func(ps *nn.Params, o model.Options) model.Model {
		fc := ps.Dense("line", 1, 1)
		forward := func(t *nn.Tape, b model.Batch) model.Outputs {
			return model.Outputs{t.Dense(b.Values, fc, nn.Identity)}
		}
		return model.Model{Forward: forward, Loss: model.Squared, Metrics: []model.Metric{model.R2()}}
	}}
}

// points lie on y = 3x + 2.
func points() (data.Batch, *data.Dataset, error) {
	all := data.Batch{N: 400}
	for i := range all.N {
		x := float32(i*79%400)/200 - 1
		all.Values, all.Targets = append(all.Values, x), append(all.Targets, 3*x+2)
	}
	src, err := data.FromBatch(data.Shape{Values: []int{1}, Targets: 1}, all)
	if err != nil {
		return all, nil, err
	}
	set := &data.Dataset{Name: "points"}
	set.Train, set.Eval, err = data.Split(src, 0.2)
	return all, set, err
}

// Two ranks train a model on data, both one's own.
func ExampleRun() {
	err := ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) error {
		_, set, err := points()
		if err != nil {
			return err
		}
		sum, err := train.Run(job.Context(), job, line(), set, train.Config{Batch: 10, Epochs: 10, LR: 0.1})
		if err == nil && job.Rank() == 0 {
			fmt.Printf("%d ranks, R² %.3f\n", sum.NP, sum.Eval["r2"])
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: 2 ranks, R² 1.000
}

// more trains on from where the loop is, whole gradients at first and then the largest tenth of them, and saves it.
func more(loop *train.Loop, rank int) error {
	all, set, err := points()
	if err != nil {
		return err
	}
	began := loop.Steps()
	for step := began; step < began+50; step++ {
		lo := (int(step)*20 + 10*rank) % all.N // ten samples of this rank
		b := model.Batch{N: 10, Values: &nn.Tensor{Shape: []int{10, 1}, Data: all.Values[lo : lo+10]}, Targets: all.Targets[lo : lo+10]}
		strategy, spars := distopt.FP32, 0.
		if step >= 75 {
			strategy, spars = distopt.TopK, 0.1
		}
		if _, err := loop.TrainOneBatch(b, strategy, spars); err != nil {
			return err
		}
	}
	e, err := loop.Evaluate(set)
	if err == nil && rank == 0 {
		fmt.Printf("steps %d to %d: R² %.2f\n", began, loop.Steps(), e.Figures["r2"])
	}
	return errors.Join(err, loop.Save())
}

// A loop of one's own is saved, and another one goes on from there: Save, on all ranks, is all that a checkpoint takes.
func ExampleLoop() {
	dir, err := os.MkdirTemp("", "loop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	for range 2 {
		err := ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) error {
			loop, err := train.NewLoop(job.Context(), job, line(), train.Config{LR: 0.1, Checkpoint: train.Checkpoint{Dir: dir, Resume: true}})
			if err != nil {
				return err
			}
			return errors.Join(more(loop, job.Rank()), loop.Close())
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// steps 0 to 50: R² 1.00
	// steps 50 to 100: R² 1.00
}
