package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench/codecs"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench/collectives"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench/kernels"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench/reading"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench/servers"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench/steps"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/console"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/launch"
	"github.com/ringo-ml/ringo/trace"
	"github.com/ringo-ml/ringo/train"
)

func newBench() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure this machine: exchanges, steps, products, kernels, codecs, files, servers",
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Lookup("rank") != nil {
				return nil // it looks itself, beside what else is wrong
			}
			_, _, err := launch.FromEnv(os.LookupEnv)
			var faults faultList
			if faults.addOther(cmd, err); len(faults) > 0 {
				return console.Usage(faults[0])
			}
			return nil
		},
	}
	return console.Group(cmd, collectives.AllReduce(&benchRanks{}), collectives.Command(&benchRanks{}), steps.Command(&benchTrainers{}),
		kernels.Gemm(), kernels.Command(), codecs.Command(), reading.Command(), servers.Command())
}

// benchRanks are the ranks of a measuring program.
type benchRanks struct{ jobFlags }

func (b *benchRanks) Register(cmd *cobra.Command) { b.register(cmd.Flags()) }

func (b *benchRanks) Check(cmd *cobra.Command) []error { return b.check(cmd) }

func (b *benchRanks) Place() bench.Place {
	return bench.Place{Ranks: b.np, Transport: b.transport, Algorithm: b.algorithm}
}

func (b *benchRanks) CheckOutputs(json string) error { return b.checkOutputs(json, "") }

func (b *benchRanks) Run(cmd *cobra.Command, body func(*ringo.Job) error) error {
	return b.run(cmd, body)
}

// benchTrainers are ranks of a measuring program that train.
type benchTrainers struct {
	benchRanks
	tracing
	cfg train.Config // what flags set
}

func (b *benchTrainers) Register(cmd *cobra.Command) {
	fs := cmd.Flags()
	b.benchRanks.Register(cmd)
	b.registerServers(fs)
	fs.IntVar(&b.cfg.Batch, "batch", 0, "samples per rank (default: the model's)")
	registerExchange(fs, &b.cfg.Exchange)
	b.tracing.register(fs)
}

func (b *benchTrainers) Check(cmd *cobra.Command) []error {
	return append(b.benchRanks.Check(cmd), b.tracing.check(cmd.Flags().Changed), b.checkExchange(b.cfg.Exchange))
}

func (b *benchTrainers) CheckOutputs(json string) error { return b.checkOutputs(json, b.tracing.path) }

func (b *benchTrainers) Config(cmd *cobra.Command, model string) (train.Config, error) {
	cfg := train.Defaults(model, data.Synthetic)
	if cmd.Flags().Changed("batch") {
		cfg.Batch = b.cfg.Batch
	}
	cfg.Exchange, cfg.Threads, cfg.Tuning = b.cfg.Exchange, b.computeThreads(), b.tuning.forTraining()
	cfg.Tuning.Save = b.tuning.planned
	return cfg, nil
}

func (b *benchTrainers) Traced(cmd *cobra.Command, job *ringo.Job, body func(*trace.Recorder) error) error {
	timeline, err := b.begin(job)
	if err != nil {
		return err
	}
	return timeline.end(body(timeline.rec), cmd.ErrOrStderr())
}
