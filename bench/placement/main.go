// Command placement trains the model mnist as a program of one's own does: with the same settings and data as `ringo train
// mnist --data synthetic`. Rank 0 writes each epoch's figures as a line of JSON. compare.py compares its steps with those of
// ringo train.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/train"
)

func run(job *ringo.Job) error {
	spec, err := models.Lookup("mnist")
	if err != nil {
		return err
	}
	cfg := train.Defaults(spec, data.Synthetic)
	cfg.Epochs = 2
	cfg.TrainLimit, cfg.EvalLimit = 10_000, 1_000 // as compare.py has them
	set, err := data.Open(spec.Data, data.Config{Dir: data.Synthetic, Seed: cfg.Seed, TrainLimit: cfg.TrainLimit, EvalLimit: cfg.EvalLimit})
	if err != nil {
		return err
	}
	if job.Rank() == 0 {
		cfg.Callbacks.AfterEpoch = func(e train.Epoch) error { return json.NewEncoder(os.Stdout).Encode(e) }
	} else {
		cfg.Callbacks.AfterEpoch = func(train.Epoch) error { return nil } // all ranks meet where one has a callback
	}
	_, err = train.Run(job.Context(), job, spec, set, cfg)
	return err
}

func main() {
	if err := ringo.Run(context.Background(), ringo.Config{}, run); err != nil {
		fmt.Fprintln(os.Stderr, "placement:", err)
		os.Exit(1)
	}
}
