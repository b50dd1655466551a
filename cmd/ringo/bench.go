package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench/collectives"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench/servers"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench/steps"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/train"
)

func newBench() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Run benchmarks on this machine",
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Lookup("rank") != nil {
				return nil // resolve reports an external launcher
			}
			if err := launch.CheckSingle(os.LookupEnv); err != nil {
				return cli.Usage(err)
			}
			return nil
		},
	}
	return cli.Group(cmd, collectives.AllReduce(&benchRanks{}), collectives.Command(&benchRanks{}), steps.Command(&benchTrainers{}), servers.Command())
}

// benchRanks runs a benchmark on the ranks of a job.
type benchRanks struct {
	jobFlags
	words []string
}

func (b *benchRanks) Register(cmd *cobra.Command) { b.register(cmd.Flags(), setting.Bench) }

func (b *benchRanks) Check(cmd *cobra.Command) []error { return b.check(cmd, "") }

func (b *benchRanks) Place() bench.Place {
	return bench.Place{Ranks: b.Ranks, Transport: b.Transport, Algorithm: b.Collective.Algorithm}
}

func (b *benchRanks) CheckOutputs(json string) error { return b.checkOutputs(json, "") }

func (b *benchRanks) Run(cmd *cobra.Command, body func(*ringo.Job) error) error {
	return b.run(cmd, b.words, body)
}

// benchTrainers is benchRanks for a benchmark that trains.
type benchTrainers struct {
	benchRanks
	tracing
}

func (b *benchTrainers) Register(cmd *cobra.Command) {
	b.register(cmd.Flags(), setting.BenchStep)
}

// Check resolves the job of the model on the command line.
func (b *benchTrainers) Check(cmd *cobra.Command, model string, usual ...setting.Assignment) []error {
	b.words, b.usual = []string{model}, append(usual, setting.Assignment{Path: "data.dir", Text: data.Synthetic})
	errs := b.check(cmd, model)
	if b.Spec == nil {
		return errs
	}
	b.tracing = tracing(b.Output.Trace)
	return append(errs, b.faults(b.Training(0).Validate()))
}

func (b *benchTrainers) CheckOutputs(json string) error {
	return b.checkOutputs(json, string(b.tracing))
}

// Config returns the training config of Check's model.
func (b *benchTrainers) Config() train.Config {
	cfg := b.Training(0)
	cfg.Tuning.Save = b.tuning.planned
	return cfg
}

func (b *benchTrainers) Traced(cmd *cobra.Command, job *ringo.Job, body func(traced bool) error) error {
	timeline, err := b.begin(job)
	if err != nil {
		return err
	}
	return timeline.end(body(timeline.line != nil), cmd.ErrOrStderr())
}
