// Command heter is examples/towers with the dense layers marked as a part for heter-trainers. Ranks
// look up rows, and heter-trainers, which run the same program, compute the layers:
//
//	go build ./examples/heter && ringo run --np 2 --servers 1 --heter 1 -- ./heter
//	ringo run --np 2 --servers 1 --sync bsp -- ./heter    # the same in one piece
//	ringo run --np 2 --servers 1 --heter 1 --checkpoint RUN -- ./heter    # --resume continues
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/train"
)

const people, dim = 200, 8 // users, and as many items

// likes returns a model with the given hidden units in the part for heter-trainers.
func likes(hidden int) func(ps *nn.Params, o model.Options) model.Model {
	return func(ps *nn.Params, o model.Options) model.Model {
		rows := ps.NewTable("rows", nn.UniformRows(0.3), o.Rows, dim)
		first, second := ps.Dense("first", 2*dim, hidden), ps.Dense("second", hidden, 2)
		layers := func(t *nn.Tape, x []*nn.Tensor) *nn.Tensor {
			return t.Dense(t.Dense(x[0], first, nn.ReLU), second, nn.Identity) // logits of no and yes
		}
		return model.Model{
			Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
				x := t.EmbeddingTable(b.IDs, b.N, rows, nil) // a user's row and an item's, side by side
				return model.Outputs{t.OnDevice("heter", layers, x)}
			},
			Loss: model.CrossEntropy, Metrics: []model.Metric{model.Accuracy(), model.AUC(model.Probability)},
		}
	}
}

func main() {
	hidden := flag.Int("hidden", 32, "`units` of the hidden layer")
	cfg := train.Config{Batch: 100, Optimizer: "adagrad", LR: 0.1}
	flag.StringVar(&cfg.Servers.Consistency, "sync", "bsp", "`mode` of the servers, as the launcher is told: bsp, ssp, async or geo")
	flag.IntVar(&cfg.Epochs, "epochs", 5, "how many `times` the data are gone through")
	flag.IntVar(&cfg.Heter.Micros, "micros", 0, "micro-`batches` of a batch; 0: the usual number")
	flag.Parse()
	cfg.Heter.Report = func(line string) { fmt.Fprintln(os.Stderr, line) }
	spec := model.Spec{Name: "likes", Build: likes(*hidden)}
	err := ringo.Run(context.Background(), ringo.Config{}, func(job *ringo.Job) error { return run(job, spec, cfg) })
	if err != nil {
		if !ringo.Reported(err) { // reported once for all processes by the launcher otherwise
			fmt.Fprintln(os.Stderr, "heter:", err)
		}
		os.Exit(1)
	}
}

func run(job *ringo.Job, spec model.Spec, cfg train.Config) error {
	set, err := liking()
	if err != nil {
		return err
	}
	sum, err := train.Run(job.Context(), job, spec, set, cfg)
	if err != nil {
		return err // ringo.ErrHeterTrainerDone in a heter-trainer, a success for ringo.Run
	}
	if job.Rank() == 0 {
		fmt.Printf("loss %v, accuracy %.3f, AUC %.3f\n", sum.EvalLoss, sum.Eval["accuracy"], sum.Eval["auc"])
	}
	return nil
}

// liking returns all pairs of a user and an item: half of the users like half of the items.
func liking() (*data.Dataset, error) {
	all := data.Batch{N: people * people}
	for i := range int32(all.N) {
		all.IDs, all.Labels = append(all.IDs, i%people, people+i/people), append(all.Labels, 1-(i%people+i/people)%2)
	}
	src, err := data.FromBatch(data.Shape{IDs: 2, Labels: 1}, all)
	if err != nil {
		return nil, err
	}
	set := &data.Dataset{Name: "likes", Classes: 2, Rows: 2 * people}
	set.Train, set.Eval, err = data.Split(src, 0.1)
	return set, err
}
