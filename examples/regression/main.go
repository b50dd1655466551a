// Command regression predicts house prices from a table with a custom model: the columns of a CSV
// file are given or detected, and a share of the rows is held out.
//
//	go build ./examples/regression
//	ringo run --np 2 -- ./regression examples/regression/houses.csv
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/train"
)

const width = 4 // width of a town's vector

// prices is a model of a row, as in the table: numbers, and a vector for each category.
func prices(ps *nn.Params, o model.Options) model.Model {
	towns := ps.New("towns", nn.Normal(0.1), o.Rows, width)
	hidden, out := ps.Dense("hidden", o.Input[0]+width*o.IDs, 32), ps.Dense("out", 32, o.Targets)
	return model.Model{
		Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
			x := t.Concat(1, b.Values, t.Reshape(t.Embedding(b.IDs, towns), b.N, width*o.IDs))
			return model.Outputs{t.Dense(t.Dense(x, hidden, nn.Tanh), out, nn.Identity)}
		},
		Loss: model.Squared, Metrics: []model.Metric{model.MAE(), model.R2()},
	}
}

func run(job *ringo.Job) error {
	cfg := train.Config{
		Data: os.Args[1], Target: "price", Schema: table.Schema{"id": table.Ignore}, Split: 0.2,
		Batch: 16, Epochs: 60, Optimizer: "adam", LR: 0.01,
	}
	sum, err := train.Run(job.Context(), job, model.Spec{Name: "prices", Build: prices}, nil, cfg)
	if err == nil && job.Rank() == 0 {
		fmt.Printf("R² %.3f, mean absolute error %.3f standard deviations\n", sum.Eval["r2"], sum.Eval["mae"])
	}
	return err
}

func main() {
	if err := ringo.Run(context.Background(), ringo.Config{}, run); err != nil {
		fmt.Fprintln(os.Stderr, "regression:", err)
		os.Exit(1)
	}
}
