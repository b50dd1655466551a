// Package benchtest has ranks for tests of benchmark programs: goroutines of the test.
package benchtest

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/train"
)

// Ranks implements bench.Ranks.
type Ranks struct {
	place bench.Place
}

// Trainers implements bench.Trainers, with changes by the test.
type Trainers struct {
	Ranks
	// Exchange, if set, changes the training before the check.
	Exchange func(*train.Config)

	batch int
	cfg   train.Config
}

// Register adds --np, --transport and --collective-algorithm.
func (r *Ranks) Register(cmd *cobra.Command) {
	cmd.Flags().IntVar(&r.place.Ranks, "np", 1, "")
	cmd.Flags().StringVar(&r.place.Transport, "transport", "auto", "")
	cmd.Flags().StringVar(&r.place.Algorithm, "collective-algorithm", "auto", "")
}

// Check reports too few ranks.
func (r *Ranks) Check(*cobra.Command) []error {
	if r.place.Ranks < 1 {
		return []error{fmt.Errorf("--np %d", r.place.Ranks)}
	}
	return nil
}

// Place returns the values of the flags.
func (r *Ranks) Place() bench.Place { return r.place }

// CheckOutputs reports no errors.
func (r *Ranks) CheckOutputs(string) error { return nil }

// Run has each rank do body.
func (r *Ranks) Run(cmd *cobra.Command, body func(*ringo.Job) error) error {
	cfg := ringo.Config{}
	if r.place.Algorithm != "auto" {
		cfg.Collective = collective.Config{Algorithm: r.place.Algorithm}
	}
	return ringo.Local(cmd.Context(), r.place.Ranks, cfg, body)
}

// Register adds the flags of Ranks, and --batch.
func (r *Trainers) Register(cmd *cobra.Command) {
	r.Ranks.Register(cmd)
	cmd.Flags().IntVar(&r.batch, "batch", 0, "")
}

// Check creates a model's training on a single thread, and returns its errors.
func (r *Trainers) Check(cmd *cobra.Command, model string, usual ...setting.Assignment) []error {
	known, err := models.Lookup(model)
	if err != nil {
		return []error{err}
	}
	r.cfg = train.Defaults(known, data.Synthetic)
	r.cfg.Name = model
	table, err := setting.New(r.cfg.Settings()...)
	if err != nil {
		return []error{err}
	}
	table.Apply(usual...)
	if r.cfg.Threads = 1; cmd.Flags().Changed("batch") {
		r.cfg.Batch = r.batch
	}
	if r.Exchange != nil {
		r.Exchange(&r.cfg)
	}
	errs := r.Ranks.Check(cmd)
	if err := r.cfg.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// Config returns the training.
func (r *Trainers) Config() train.Config { return r.cfg }

// Traced draws no timeline.
func (r *Trainers) Traced(_ *cobra.Command, _ *ringo.Job, body func(traced bool) error) error {
	return body(false)
}
