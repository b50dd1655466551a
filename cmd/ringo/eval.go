package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/progress"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/train"
)

// evalCommand is `ringo eval CHECKPOINT`.
type evalCommand struct {
	jobFlags
	checkpoint string // file or folder
	worst      int    // of --worst
	importance int    // of --importance
	by         string // of --by
}

func newEval() *cobra.Command { return new(evalCommand).command() }

func (c *evalCommand) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "eval CHECKPOINT",
		Short: "Evaluate a checkpoint",
		Long: "Evaluate a saved model on the evaluation samples of its training data, or of --data.\n" +
			"CHECKPOINT is a file, or the folder of a run: of a folder the best checkpoint (RUN/best)\n" +
			"is used if the run had training.monitor, else the last one (RUN/last).\n" +
			"With as many ranks as in training, the metrics equal the run's to the last digit.",
		Example: "  ringo eval ./checkpoints\n  ringo eval ./checkpoints/step-1874.ringo --data ./mnist --np 2 --json -\n  ringo eval ./checkpoints --worst 10 --importance\n  ringo eval ./checkpoints --by day",
		Args:    oneCheckpoint,
		RunE:    func(cmd *cobra.Command, words []string) error { return withCheckpoint(cmd, words, c.execute) },
	}
	c.register(cmd.Flags(), setting.Eval)
	cmd.Flags().BoolVar(&c.verbose, "verbose", false, "print the transport, kernels and notes about columns, too")
	cmd.Flags().IntVar(&c.worst, "worst", 0, "print the `N` samples with the largest loss: file and row, or image, prediction and truth")
	cmd.Flags().IntVar(&c.importance, "importance", 0, "print the rise of the loss if each column's values are permuted among the samples, the mean of `N` permutations; without a number: 5")
	cmd.Flags().StringVar(&c.by, "by", "", "print AUC, log-loss and calibration for each value of `COLUMN`, such as a day or a slot, of clicks or of two classes; default: of all samples")
	cmd.Flags().Lookup("importance").NoOptDefVal = "5"
	return cmd
}

// oneCheckpoint requires one argument, a checkpoint.
func oneCheckpoint(cmd *cobra.Command, words []string) error {
	if f := cmd.Flags().Lookup("importance"); len(words) == 2 && f != nil && f.Changed {
		return cli.Usagef("--importance %s: a number follows an equals sign, such as --importance=10", words[1])
	}
	if len(words) != 1 {
		return cli.Usagef("`%s` needs one checkpoint, a file or the folder of --checkpoint, got %q; see `%s --help`", cmd.CommandPath(), words, cmd.CommandPath())
	}
	return nil
}

// notForEval reports whether a command that reads a checkpoint ignores a setting of the run:
// settings of saving, tuning, initial weights and heter-trainers.
func notForEval(a setting.Assignment) bool {
	return job.GroupOf(a.Path) == "heter" || slices.Contains([]setting.Path{
		"checkpoint.every", "checkpoint.keep", "ps.dir", "ps.durability", "ps.checkpoint-every",
		"ps.failure-policy", "ps.shrink-every", "ps.delete-after-unseen-days", "tuning.tune", "tuning.profile", "training.seeds", "training.folds", "training.init-from", "training.init-except", "training.average", "training.class-weights", "training.label-smoothing",
	}, a.Path)
}

// reading returns the settings of the checkpoint's run that apply to this command and that given
// does not replace, and settings that name the checkpoint's folder.
func (g *commandSettings) reading(given []setting.Assignment) ([]setting.Assignment, error) {
	file, err := train.FindPrevious(g.checkpointPath)
	if err != nil {
		return nil, err
	}
	if file.File == "" {
		if _, err := os.Stat(g.checkpointPath); err != nil {
			return nil, cli.Usage(err)
		}
		return nil, cli.Usagef("%s: no checkpoint is there; name a file, or the folder of --checkpoint", g.checkpointPath)
	}
	saved := slices.DeleteFunc(file.Assignments, notForEval)
	gives := func(p setting.Path) bool {
		return slices.ContainsFunc(given, func(a setting.Assignment) bool { return a.Path == p })
	}
	if gives("data.dir") { // replaces the files
		saved = slices.DeleteFunc(saved, func(a setting.Assignment) bool { return a.Path == "data.train-file" || a.Path == "data.eval-file" })
	}
	if gives("data.eval-file") { // replaces the share
		saved = slices.DeleteFunc(saved, func(a setting.Assignment) bool { return a.Path == "data.eval-split" })
	}
	if g.serves || !needsServers(saved, given) {
		saved = withoutServers(saved)
	}
	if g.predicts {
		saved = slices.DeleteFunc(saved, func(a setting.Assignment) bool { return job.GroupOf(a.Path) == "job" })
	}
	for _, a := range [][2]string{{"checkpoint.dir", filepath.Dir(file.File)}, {"checkpoint.resume", "true"}} {
		saved = append(saved, setting.Assignment{Path: setting.Path(a[0]), Text: a[1]})
	}
	for i := range saved {
		saved[i].Origin = setting.Origin("the checkpoint " + file.File)
	}
	return saved, nil
}

// needsServers reports whether parameter servers must read the saved rows: this command's settings
// (given) request servers, or the run's settings (saved) limit the memory of its servers. Otherwise
// the ranks read the rows.
func needsServers(saved, given []setting.Assignment) bool {
	return slices.ContainsFunc(given, func(a setting.Assignment) bool { return a.Path == "servers.count" || a.Path == "ps.addresses" }) ||
		slices.ContainsFunc(saved, func(a setting.Assignment) bool { return a.Path == "ps.memory" })
}

// withoutServers returns a run's settings for ranks without parameter servers.
func withoutServers(told []setting.Assignment) (out []setting.Assignment) {
	kept := slices.ContainsFunc(told, func(a setting.Assignment) bool { return a.Path == "sync" && job.Sync(a.Text).UsesParameterServers() })
	for _, a := range told {
		switch {
		case kept && (a.Path == "sync" || slices.Contains([]string{"servers", "ps"}, job.GroupOf(a.Path))):
			continue
		case kept && a.Path == "training.optimizer" && a.Text == train.OptimizerClick: // only servers have click
			a.Text = "adagrad"
		}
		out = append(out, a)
	}
	return out
}

func (c *evalCommand) execute(cmd *cobra.Command, words []string) error {
	c.checkpoint, c.checkpointPath = words[0], words[0]
	errs := c.check(cmd, "")
	if c.Spec == nil {
		return errors.Join(errs...)
	}
	if err := errors.Join(append(errs, c.faults(c.ValidateTraining()))...); err != nil {
		return cli.Usage(err)
	}
	cfg := c.training()
	cfg.Checkpoint.Dir, cfg.Worst, cfg.Importance, cfg.By = c.checkpoint, c.worst, c.importance, c.by
	if cfg.Data != data.Synthetic && !c.worker {
		if err := train.FindData(cfg); err != nil {
			return err
		}
	}
	if err := c.checkOutputs(c.Output.JSON, ""); err != nil {
		return err
	}
	return c.run(cmd, words, func(job *ringo.Job) error { return c.evaluate(cmd, job, cfg) })
}

func (c *evalCommand) evaluate(cmd *cobra.Command, job *ringo.Job, cfg train.Config) error {
	if job.Rank() != 0 {
		_, err := train.Evaluate(cmd.Context(), job, cfg.Model, nil, cfg)
		return err
	}
	rep, err := c.reporter(cmd, job, c.Output.JSON, false)
	if err != nil {
		return err
	}
	rep.Show(c.verbose, false)
	cfg.Observer = progress.Evaluating{Reporter: rep}
	e, err := train.Evaluate(cmd.Context(), job, cfg.Model, nil, cfg)
	if err == nil {
		rep.Evaluation(e)
	}
	return errors.Join(err, rep.Finish())
}

// findStart finds the servers' parts of the checkpoint that a job resumes or only reads. In the
// latter case, servers write to a scratch folder that end removes.
func (f *jobFlags) findStart() (end func() error, err error) {
	if f.checkpointPath == "" {
		f.start, err = job.Begin(f.Train.Checkpoint.Dir, f.Train.Checkpoint.Resume)
		return func() error { return nil }, err
	}
	scratch, err := os.MkdirTemp("", "ringo-eval-")
	if err != nil {
		return nil, err
	}
	end = func() error { return os.RemoveAll(scratch) }
	if f.start, err = job.Look(f.checkpointPath, scratch); err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
}
