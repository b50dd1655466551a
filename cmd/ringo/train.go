package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/console"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/report"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/train"
)

// trainCommand is `ringo train MODEL`.
type trainCommand struct {
	jobFlags
	settings
	tracing
	given jobSettings
}

func newTrain() *cobra.Command {
	c := &trainCommand{settings: settings{cfg: train.Config{Seed: 1}}}
	cmd := &cobra.Command{
		Use:   "train MODEL",
		Short: "Train a model on N workers",
		Args:  func(*cobra.Command, []string) error { return nil }, // a job file may name the model
		RunE: func(cmd *cobra.Command, words []string) error {
			words, err := c.given.apply(cmd, trainGroups(), words)
			if err != nil {
				return usageError{err}
			}
			if err := oneModel(cmd, words); err != nil {
				return err
			}
			c.words = words
			return c.execute(cmd, words[0])
		},
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { shortHelp(cmd.OutOrStdout()) })
	c.given.register(cmd.Flags())
	c.jobFlags.register(cmd.Flags())
	c.registerServers(cmd.Flags())
	c.ps.registerRanks(cmd.Flags())
	c.settings.register(cmd.Flags())
	c.tracing.register(cmd.Flags())
	return cmd
}

// modelList describes the models and their defaults, three lines each.
func modelList() string {
	var b strings.Builder
	for _, s := range models.All() {
		names := strings.Join(append([]string{s.Name}, s.Aliases...), ", ")
		fmt.Fprintf(&b, "  %s (%s parameters)\n      %s\n", names, grouped(s.Params), s.About)
		d := s.Defaults
		fmt.Fprintf(&b, "      data %s, batch %d, %s, %s, lr %v", s.Data, d.Batch, counted(d.Epochs, "epoch"), d.Optimizer, d.LR)
		for _, v := range []struct {
			name  string
			value float64
		}{{"momentum", d.Momentum}, {"weight decay", d.WeightDecay}, {"clip norm", d.ClipNorm}} {
			if v.value != 0 {
				fmt.Fprintf(&b, ", %s %v", v.name, v.value)
			}
		}
		b.WriteByte('\n')
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

func (c *trainCommand) execute(cmd *cobra.Command, model string) error {
	if err := takeOver(cmd, model); err != nil {
		return err
	}
	errs := append(c.jobFlags.check(cmd), c.tracing.check(cmd.Flags().Changed))
	s, err := c.forModel(cmd, model)
	s.cfg.Threads, s.cfg.Tuning = c.computeThreads(), c.tuning.forTraining()
	s.cfg.Servers = c.ps.training()
	var untold error
	s.cfg.Checkpoint.Told, untold = tellAll(cmd)
	errs = append(errs, err, untold, s.cfg.Validate(), c.checkExchange(s.cfg.Exchange))
	if s.seeds < 1 || s.seeds > maxSeeds {
		errs = append(errs, fmt.Errorf("--seeds %d: want 1 to %d", s.seeds, maxSeeds))
	}
	if s.seeds > 1 && c.ps.keeps() {
		errs = append(errs, fmt.Errorf("--seeds %d with --ps-mode %s: servers keep the parameters of one run: run the seeds one by one", s.seeds, c.ps.mode))
	}
	if s.seeds > 1 && s.cfg.Checkpoint.Dir != "" {
		errs = append(errs, fmt.Errorf("--seeds %d with --checkpoint: a folder of checkpoints is of one run", s.seeds))
	}
	if err := errors.Join(errs...); err != nil {
		return usageError{err}
	}
	if s.cfg.Data != data.Synthetic && !c.worker { // a launcher says it once, for all ranks
		if err := train.FindData(s.cfg); err != nil {
			return err
		}
	}
	if !c.worker && (!c.byHand || c.rank == 0) {
		if err := s.cfg.Checkpoint.Prepare(); err != nil {
			return err
		}
	}
	if err := c.checkOutputs(s.json, c.tracing.path); err != nil {
		return err
	}
	return c.run(cmd, func(job *ringo.Job) error {
		timeline, err := c.begin(job)
		if err != nil {
			return err
		}
		s := s // each rank has a recorder of its own
		s.cfg.Exchange.Trace = timeline.rec
		return timeline.end(c.trainOn(cmd, job, &s), cmd.ErrOrStderr())
	})
}

// trainOn is what a rank does: rank 0 tells of it.
func (c *trainCommand) trainOn(cmd *cobra.Command, job *ringo.Job, s *settings) error {
	if job.Rank() != 0 {
		return s.train(job, report.Silent{}, func(train.Summary) {}, func(train.Seeds) {})
	}
	rep, err := c.reporter(cmd, job, s.json, s.cfg.Checkpoint.Resume)
	if err != nil {
		return err
	}
	told := *s // the other ranks may be in this process
	told.cfg.Tuning.Report, told.cfg.Tuning.Measuring, told.cfg.Tuning.Save = rep.Choice, rep.Measuring, c.tuning.planned
	err = told.train(job, rep, rep.Summary, rep.Seeds)
	if err == nil {
		err = c.tuning.unsaved()
	}
	return errors.Join(err, rep.Finish())
}

// train runs every seed and tells of each run and, of several, of all.
func (s *settings) train(job *ringo.Job, obs train.Observer, each func(train.Summary), all func(train.Seeds)) error {
	if s.seeds == 1 {
		sum, err := train.Run(job, s.cfg, obs)
		if err == nil {
			each(sum)
		}
		return err
	}
	sum, err := train.RunSeeds(job, s.cfg, s.seeds, obs, each)
	if err == nil {
		all(sum)
	}
	return err
}

// reporter is what rank 0 tells; with more, behind what the file of --json holds.
func (f *jobFlags) reporter(cmd *cobra.Command, job *ringo.Job, json string, more bool) (*report.Reporter, error) {
	out, err := console.OpenMore(cmd, json, more)
	if err != nil {
		return nil, err
	}
	columns := cmp.Or(job.Columns(), console.Columns(cmd.ErrOrStderr()))
	return report.New(out, f.progress, cmd.ErrOrStderr(), columns), nil
}
