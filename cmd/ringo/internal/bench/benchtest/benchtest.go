// Package benchtest has ranks for tests of measuring programs: goroutines of the test.
package benchtest

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/trace"
	"github.com/ringo-ml/ringo/train"
)

// Ranks are bench.Trainers that a test may begin with settings of a training.
type Ranks struct {
	// Exchange changes a training before it is checked; nil: nothing.
	Exchange func(*train.Config)

	place bench.Place
	batch int
}

// Register adds --np, --transport, --algorithm and --batch.
func (r *Ranks) Register(cmd *cobra.Command) {
	cmd.Flags().IntVar(&r.place.Ranks, "np", 1, "")
	cmd.Flags().StringVar(&r.place.Transport, "transport", "auto", "")
	cmd.Flags().StringVar(&r.place.Algorithm, "algorithm", "auto", "")
	cmd.Flags().IntVar(&r.batch, "batch", 0, "")
}

// Check reports too few ranks.
func (r *Ranks) Check(*cobra.Command) []error {
	if r.place.Ranks < 1 {
		return []error{fmt.Errorf("--np %d", r.place.Ranks)}
	}
	return nil
}

// Place is what the flags say.
func (r *Ranks) Place() bench.Place { return r.place }

// CheckOutputs reports nothing.
func (r *Ranks) CheckOutputs(string) error { return nil }

// Run has each rank do body.
func (r *Ranks) Run(cmd *cobra.Command, body func(*ringo.Job) error) error {
	cfg := ringo.Config{}
	if r.place.Algorithm != "auto" {
		cfg.Collective = collective.Config{Algorithm: r.place.Algorithm}
	}
	return ringo.Local(cmd.Context(), r.place.Ranks, cfg, body)
}

// Config is a model's on one thread.
func (r *Ranks) Config(cmd *cobra.Command, model string) (train.Config, error) {
	cfg := train.Defaults(model, data.Synthetic)
	if cfg.Threads = 1; cmd.Flags().Changed("batch") {
		cfg.Batch = r.batch
	}
	if r.Exchange != nil {
		r.Exchange(&cfg)
	}
	return cfg, nil
}

// Traced draws no timeline.
func (r *Ranks) Traced(_ *cobra.Command, _ *ringo.Job, body func(*trace.Recorder) error) error {
	return body(nil)
}
