package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/train"
)

// trainCommand is `ringo train MODEL`.
type trainCommand struct {
	jobFlags
	cfg  train.Config
	json string
}

func newTrain() *cobra.Command {
	c := &trainCommand{cfg: train.Defaults("", "")}
	cmd := &cobra.Command{
		Use:   "train MODEL",
		Short: "Train a model on N workers",
		Long: "Train a model on N workers: on this machine with one command, or rank by rank on\nany hosts with --rank, --rendezvous and the ticket in RINGO_TICKET.\n\nModels:\n" +
			modelList(),
		Example: "  ringo train mnist --data synthetic --np 2 --epochs 3\n" +
			"  ringo train mnist --data DIR --np 4 --strategy partialUpdate --json run.jsonl",
		Args: oneModel,
		RunE: func(cmd *cobra.Command, args []string) error {
			c.cfg.Model = args[0]
			return c.execute(cmd)
		},
	}
	fs := cmd.Flags()
	c.register(fs)
	fs.StringVar(&c.cfg.Data, "data", "", "`DIR` with the data set's files, or \"synthetic\" (required)")
	fs.IntVar(&c.cfg.Batch, "batch", c.cfg.Batch, "samples per rank and step")
	fs.IntVar(&c.cfg.Epochs, "epochs", c.cfg.Epochs, "how often the training set is seen")
	fs.Float64Var(&c.cfg.LR, "lr", c.cfg.LR, "learning rate")
	fs.Float64Var(&c.cfg.Momentum, "momentum", c.cfg.Momentum, "momentum")
	fs.Float64Var(&c.cfg.WeightDecay, "weight-decay", c.cfg.WeightDecay, "L2 penalty on the parameters")
	fs.Uint64Var(&c.cfg.Seed, "seed", c.cfg.Seed, "decides initial parameters, the order of samples and synthetic data")
	fs.IntVar(&c.cfg.TrainLimit, "train-limit", 0, "train on the first `N` samples only; 0: all")
	fs.IntVar(&c.cfg.EvalLimit, "eval-limit", 0, "evaluate on the first `N` samples only; 0: all")
	fs.StringVar((*string)(&c.cfg.Exchange.Strategy), "strategy", string(distopt.FP32), "what the ranks exchange: "+strategyList())
	fs.StringVar(&c.cfg.Exchange.Plan, "plan", distopt.PlanFixed, "how layers are merged into buckets: "+strings.Join(distopt.Plans(), ", "))
	fs.IntVar(&c.cfg.Exchange.BucketBytes, "bucket-bytes", 0, "bytes of a bucket with --plan fixed; 0: the default")
	fs.Float64Var(&c.cfg.Exchange.ClipNorm, "clip-norm", 0, "bound on the norm of the whole gradient; 0: none")
	fs.IntVar(&c.cfg.Exchange.Accumulation, "accumulate", 1, "batches whose gradients make one step")
	fs.IntVar(&c.cfg.Exchange.Partitions, "partitions", 0, "parts that partialUpdate averages in turn; 0: 4")
	fs.StringVar(&c.json, "json", "", "write one JSON object per epoch and a summary to `FILE`, or to stdout with -")
	return cmd
}

func strategyList() string {
	var names []string
	for _, s := range distopt.Strategies() {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

func modelList() string {
	var b strings.Builder
	for _, s := range models.All() {
		names := strings.Join(append([]string{s.Name}, s.Aliases...), ", ")
		fmt.Fprintf(&b, "  %-17s %s (%s parameters)\n", names, s.About, grouped(s.Params))
	}
	return b.String()
}

// oneModel wants exactly one known model.
func oneModel(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("`%s` needs a model, for instance `%s mnist`; see `%s --help`", cmd.CommandPath(), cmd.CommandPath(), cmd.CommandPath())
	}
	if len(args) > 1 {
		return usagef("`%s` takes one model, got %q", cmd.CommandPath(), args)
	}
	if _, err := models.Lookup(args[0]); err != nil {
		return usageError{err}
	}
	return nil
}

func (c *trainCommand) execute(cmd *cobra.Command) error {
	errs := c.check(cmd)
	cfg := c.cfg
	cfg.Threads = c.computeThreads()
	errs = append(errs, cfg.Validate())
	if err := errors.Join(errs...); err != nil {
		return usageError{err}
	}
	if cfg.Data != train.Synthetic && !c.worker { // a launcher says it once, for all ranks
		if err := data.FindMNIST(cfg.Data); err != nil {
			return err
		}
	}
	var summary train.Summary
	return c.run(cmd, func(job *ringo.Job) error {
		if job.Rank() != 0 {
			_, err := train.Run(job, cfg, silent{})
			return err
		}
		rep, err := c.reporter(cmd, job)
		if err != nil {
			return err
		}
		summary, err = train.Run(job, cfg, rep)
		return errors.Join(err, rep.finish(summary, err))
	})
}

// reporter is what rank 0 tells.
func (c *trainCommand) reporter(cmd *cobra.Command, job *ringo.Job) (*reporter, error) {
	out, err := openOutput(cmd, c.json)
	if err != nil {
		return nil, err
	}
	rep := &reporter{output: out, style: c.progress, status: cmd.ErrOrStderr(), columns: job.Columns()}
	if rep.columns == 0 {
		rep.columns, _ = terminalOf(cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return rep, nil
}
