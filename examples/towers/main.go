// Command towers predicts preferences by a tower each for users and items, with rows on servers.
//
//	go build ./examples/towers && ringo run --np 2 --servers 2 --sync async -- ./towers
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

const people, dim = 200, 8 // users, and as many items

func towers(ps *nn.Params, o model.Options) model.Model {
	rows, user, item := ps.NewTable("rows", nn.UniformRows(0.3), o.Rows, dim), ps.Dense("user", dim, dim), ps.Dense("item", dim, dim)
	return model.Model{
		Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
			x := t.EmbeddingTable(b.IDs, b.N, rows, nil) // a user's row and an item's, side by side
			u, i := t.Dense(t.Slice(x, 1, 0, dim), user, nn.Identity), t.Dense(t.Slice(x, 1, dim, 2*dim), item, nn.Identity)
			likes := t.Reshape(t.RowDot(u, i), b.N, 1)
			return model.Outputs{t.Concat(1, t.Scale(likes, 0), likes)} // logits of no and yes
		},
		Loss: model.CrossEntropy, Metrics: []model.Metric{model.Accuracy(), model.AUC(model.Probability)},
	}
}

func run(job *ringo.Job) error {
	all := data.Batch{N: people * people}
	for i := range int32(all.N) { // half of the users like half of the items
		all.IDs, all.Labels = append(all.IDs, i%people, people+i/people), append(all.Labels, 1-(i%people+i/people)%2)
	}
	src, err := data.FromBatch(data.Shape{IDs: 2, Labels: 1}, all)
	if err != nil {
		return err
	}
	set := &data.Dataset{Name: "likes", Classes: 2, Rows: 2 * people}
	if set.Train, set.Eval, err = data.Split(src, 0.1); err != nil {
		return err
	}
	cfg := train.Config{Batch: 100, Epochs: 5, Optimizer: "adagrad", LR: 0.1, Servers: train.Servers{Consistency: "async"}}
	sum, err := train.Run(job.Context(), job, model.Spec{Name: "towers", Build: towers}, set, cfg)
	if err == nil && job.Rank() == 0 {
		fmt.Printf("accuracy %.3f, AUC %.3f\n", sum.Eval["accuracy"], sum.Eval["auc"])
	}
	return err
}

func main() {
	if err := ringo.Run(context.Background(), ringo.Config{}, run); err != nil {
		fmt.Fprintln(os.Stderr, "towers:", err)
		os.Exit(1)
	}
}
