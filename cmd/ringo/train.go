package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/progress"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/runlog"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/steptrace"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/train"
)

// trainCommand is `ringo train MODEL`.
type trainCommand struct {
	jobFlags
	tracing
	write string // the file of --write-job
}

func newTrain() *cobra.Command { return new(trainCommand).command() }

func (c *trainCommand) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "train MODEL",
		Short: "Train a model on N ranks",
		Args: func(cmd *cobra.Command, words []string) error {
			if len(words) > 1 {
				return cli.Usagef("`%s` takes one model, got %q", cmd.CommandPath(), words)
			}
			return nil // a job file may name the model
		},
		RunE: func(cmd *cobra.Command, words []string) error {
			return c.carried(func() error { return c.execute(cmd, words) })
		},
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { shortHelp(cmd.OutOrStdout()) })
	c.register(cmd.Flags(), setting.Train)
	cmd.Flags().BoolVar(&c.verbose, "verbose", false, "print plans, kernels, connections, and the start and end of each process, too")
	cmd.Flags().StringVar(&c.write, "write-job", "", "write all settings of the run, also the chosen ones, as a job `FILE` that repeats the run")
	return cmd
}

// modelList describes the models and their defaults, three lines each.
func modelList() string {
	var b strings.Builder
	for _, s := range models.All() {
		names := strings.Join(append([]string{s.Name}, s.Aliases...), ", ")
		fmt.Fprintf(&b, "  %s (%s parameters)\n      %s\n", names, cli.Grouped(s.Params), s.About)
		d := s.Defaults
		fmt.Fprintf(&b, "      data %s, batch %d, %s, %s, lr %s", s.Data, d.Batch, cli.Counted(d.Epochs, "epoch"), d.Optimizer, quantity.Exact(d.LR))
		if d.GlobalBatch > 0 {
			fmt.Fprintf(&b, " for a global batch of %d", d.GlobalBatch)
		}
		for _, v := range []struct {
			name  string
			value float64
		}{{"momentum", d.Momentum}, {"weight decay", d.WeightDecay}, {"clip norm", d.ClipNorm}} {
			if v.value != 0 {
				fmt.Fprintf(&b, ", %s %s", v.name, quantity.Exact(v.value))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// oneModel rejects a missing, second or unknown model.
func oneModel(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cli.Usagef("`%s` needs a model, for instance `%s mnist`; see `%s --help`", cmd.CommandPath(), cmd.CommandPath(), cmd.CommandPath())
	}
	if len(args) > 1 {
		return cli.Usagef("`%s` takes one model, got %q", cmd.CommandPath(), args)
	}
	if _, err := models.Lookup(args[0]); err != nil {
		return cli.Usage(err)
	}
	return nil
}

// dataAsModel returns an error, with the right command, if a file or folder is given instead of a
// model.
func dataAsModel(cmd *cobra.Command, words []string) error {
	if len(words) != 1 {
		return nil
	}
	path := words[0]
	if _, err := models.Lookup(path); err == nil {
		return nil
	}
	if _, err := os.Stat(path); err != nil && filepath.Ext(path) == "" {
		return nil
	}
	model := "mlp"
	if set := data.NameOf("images", data.Config{Dir: path}); set == "images" || set == "shards" {
		model = "resnet50"
	}
	return cli.Usagef("%s is no model, but data: name the model first, for instance `%s %s --data %s`", path, cmd.CommandPath(), model, path)
}

// settle resolves the settings and reports every error.
func (c *trainCommand) settle(cmd *cobra.Command, words []string) error {
	if err := dataAsModel(cmd, words); err != nil {
		return err
	}
	errs := c.check(cmd, strings.Join(words, ""))
	if c.Spec == nil {
		return errors.Join(errs...)
	}
	if err := oneModel(cmd, slices.DeleteFunc([]string{c.Model}, func(m string) bool { return m == "" })); err != nil {
		return err
	}
	c.tracing = tracing(c.Output.Trace)
	errs = append(errs, c.faults(errors.Join(c.awayFault(), c.ValidateTraining())))
	if err := errors.Join(errs...); err != nil {
		return cli.Usage(err)
	}
	return nil
}

func (c *trainCommand) execute(cmd *cobra.Command, words []string) error {
	if is, err := startedAsHeter(); is || err != nil { // started by `ringo run`
		return (&heterRole{commandSettings: c.commandSettings, model: strings.Join(words, "")}).execute(cmd)
	}
	if err := c.settle(cmd, words); err != nil {
		return err
	}
	cfg := c.training()
	cfg.Checkpoint.Assignments = c.checkpointAssignments()
	if cfg.Data != data.Synthetic && !c.worker { // the launcher reports once for all ranks
		if err := train.FindData(cfg); err != nil {
			return err
		}
	}
	if !c.worker && c.Rank <= 0 {
		if err := errors.Join(checkTorch(cmd.Context(), c.Spec), train.CheckInit(cfg), cfg.Checkpoint.Prepare()); err != nil {
			return err
		}
	}
	if err := errors.Join(c.checkOutputs(c.Output.JSON, string(c.tracing)), cli.Creatable("--write-job", c.write), c.checkFolder("--tensorboard", c.Output.TensorBoard)); err != nil {
		return err
	}
	return c.run(cmd, []string{c.Model}, func(job *ringo.Job) error {
		timeline, err := c.begin(job)
		if err != nil {
			return err
		}
		cfg := cfg // ranks of a process have separate timelines
		cfg.Threads = c.Threads()
		cfg.Traced, cfg.Labelled = timeline.line != nil, c.Output.HTTP != ""
		end, err := c.profiled(job.Rank())
		if err != nil {
			return err
		}
		return errors.Join(timeline.end(c.trainOn(cmd, job, cfg), cmd.ErrOrStderr()), end())
	})
}

// training returns the configuration of a rank in the current attempt.
func (g *commandSettings) training() train.Config {
	if g.start != nil {
		return g.Training(g.start.Number)
	}
	return g.Training(0)
}

func (c *trainCommand) trainOn(cmd *cobra.Command, job *ringo.Job, cfg train.Config) error {
	feed := c.feed()
	defer feed.Close()
	cfg.EachStep = feed.Steps(job.Rank(), cfg.LogEvery > 0)
	cfg.Heter.Note = tells(cmd)
	if !c.worker { // otherwise the launcher reports lost processes
		cfg.Heter.Report = cfg.Heter.Note
	}
	if job.Rank() != 0 {
		return c.train(job, cfg, func(train.Summary) {}, func(train.Seeds) {})
	}
	rep, err := c.reporter(cmd, job, c.Output.JSON, cfg.Checkpoint.Resume)
	if err != nil {
		return err
	}
	rep.Begin(c.record())
	rep.Also(feed.Record)
	rep.SetStepSource(func() (steptrace.Step, bool) {
		return steptrace.StepOf(0, job.Recorder().Glance(steptrace.WholeStepEvents))
	})
	if c.Output.TensorBoard != "" {
		rep.TensorBoard(c.Output.TensorBoard, c.Seeds > 1 || c.Folds > 0)
	}
	// Only rank 0 reports: other ranks may be in this process.
	cfg.Tuning.Report, cfg.Tuning.Measuring, cfg.Tuning.Save = rep.Choice, rep.Measuring, c.tuning.planned
	var last train.Summary
	cfg.Observer = feed.Observe(rep)
	err = c.train(job, cfg, func(s train.Summary) { rep.Summary(s); last = s }, rep.Seeds)
	if err == nil {
		err = errors.Join(c.tuning.unsaved(), c.writeJob(c.write, c.chosen(job, last)...))
	}
	return errors.Join(err, rep.Finish())
}

// record returns the first record of --json, which describes the job.
func (c *trainCommand) record() runlog.Job {
	r := runlog.Job{Event: "job", Ringo: ringo.Version, Started: time.Now().UTC().Format(time.RFC3339), Settings: map[string]string{}, Machine: runlog.LocalMachine()}
	for _, a := range c.asSaid(c.Resolved(c.table)) {
		r.Settings[string(a.Path)] = a.Text
		if text, _ := c.table.Get(a.Path); text != c.table.Default(a.Path) {
			r.Changed = append(r.Changed, string(a.Path))
		}
	}
	if r.Lost = c.lost.Ranks; len(r.Lost) > 0 {
		r.LostS = time.Since(c.lost.At).Seconds()
	}
	return r
}

// train runs every seed or fold. It calls each with the summary of every run, and all with the
// summary of several runs.
func (c *trainCommand) train(job *ringo.Job, cfg train.Config, each func(train.Summary), all func(train.Seeds)) error {
	if c.Seeds == 1 && c.Folds == 0 {
		sum, err := train.Run(job.Context(), job, cfg.Model, nil, cfg)
		if err == nil {
			each(sum)
		}
		if sum.Stages != nil {
			c.spent = ": " + sum.Stages.String()
		}
		if sum.RowCache != nil {
			c.spent += "; " + sum.RowCache.String()
		}
		return err
	}
	var sum train.Seeds
	var err error
	if c.Folds > 0 {
		sum, err = train.RunFolds(job.Context(), job, cfg.Model, cfg, c.Folds, each)
	} else {
		sum, err = train.RunSeeds(job.Context(), job, cfg.Model, nil, cfg, c.Seeds, each)
	}
	if err == nil {
		all(sum)
	}
	return err
}

// reporter returns rank 0's reporter. If more is true, it appends to the file of --json.
func (f *jobFlags) reporter(cmd *cobra.Command, job *ringo.Job, json string, more bool) (*progress.Reporter, error) {
	out, err := cli.OpenMore(cmd, json, more)
	if err != nil {
		return nil, err
	}
	columns := cmp.Or(job.Columns(), cli.Columns(cmd.ErrOrStderr()))
	rep := progress.New(out, f.progress, cmd.ErrOrStderr(), columns)
	rep.Show(f.verbose, f.colour && json != "-")
	return rep, nil
}
