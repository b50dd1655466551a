// Package steps is `ringo bench step`: timing of the whole training step on random inputs.
package steps

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/median"
	"github.com/ringo-ml/ringo/internal/randbatch"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/usage"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/train"
)

// command is `ringo bench step MODEL`.
type command struct {
	bench.Trainers
	steps  int
	layers bool
	json   string
}

// mostSteps limits the list of times.
const mostSteps = 1_000_000

// result is the JSON line.
type result struct {
	Bench   string `json:"bench"` // "step"
	Model   string `json:"model"`
	Batch   int    `json:"batch"` // batch per rank
	NP      int    `json:"np"`
	Servers int    `json:"servers,omitempty"` // aggregation servers
	Threads int    `json:"threads"`           // threads per rank
	// StepMS is the median over steps, and StepMeanMS the mean, of the slowest rank's time. The
	// break-down is its mean over the steps within 1 % of the median, so that the parts add up.
	StepMS      float64             `json:"step_ms"`
	StepMeanMS  float64             `json:"step_mean_ms"`
	SamplesPerS float64             `json:"samples_per_s"` // rate at StepMS
	TokensPerS  train.OptionalFloat `json:"tokens_per_s,omitzero"`
	train.BreakDown
	// BytesSent is the payload of gradients sent by a rank per step, and Density the share of their
	// values: means over ranks and steps.
	BytesSent int64  `json:"bytes_sent"`
	Params    int    `json:"params"`
	Steps     int    `json:"steps"`
	Optimizer string `json:"optimizer"`
	Strategy  string `json:"strategy"`
	Plan      string `json:"plan"`
	Buckets   int    `json:"buckets"`
	Kernels   string `json:"kernels"`
	// AllocsPerStep is of the process with the most allocations; --transport mem has a single
	// process.
	AllocsPerStep float64 `json:"allocs_per_step"`
	// RSSGrowthBytes is the growth of the largest process's memory from before the model was built
	// to after the steps; 0 means unknown.
	RSSGrowthBytes int64 `json:"rss_growth_bytes"`
	choice
	// Layers is the last step's effect on each layer, with --layers.
	Layers []train.Layer `json:"layers,omitempty"`
}

// Command returns `ringo bench step`, on ranks that train.
func Command(ranks bench.Trainers) *cobra.Command {
	c := &command{Trainers: ranks}
	cmd := &cobra.Command{
		Use:   "step MODEL",
		Short: "Benchmark a training step",
		Long: "Time a whole training step (forward, backward, exchange and update) on random inputs that are\n" +
			"in memory before the step. The optimizer is sgd with learning rate 0.005 and momentum 0.9, for\n" +
			"click models without momentum, and adamw for models with adamw as default; without\n" +
			"clipping. A sample of a language model is a sequence.",
		Example: "  ringo bench step mnist --batch 64 --np 2 --threads 1 --json -",
		Args:    cli.OneArgument("a model", "mnist"),
		RunE:    func(cmd *cobra.Command, args []string) error { return c.execute(cmd, args[0]) },
	}
	fs := cmd.Flags()
	c.Register(cmd)
	fs.IntVar(&c.steps, "steps", 100, "number of measured steps, after a tenth as many for warm-up")
	fs.BoolVar(&c.layers, "layers", false, "show for each layer the values that the last step sent, and the norm of the residual")
	fs.StringVar(&c.json, "json", "", "write the result as a JSON object to `FILE`, or to stdout with -")
	return cmd
}

func likePyTorch(spec model.Spec) []setting.Assignment {
	out := []setting.Assignment{{Path: "training.clip-norm", Text: "0"}}
	if spec.Defaults.Optimizer == "adamw" {
		return out
	}
	momentum := "0.9"
	if spec.Task == model.Click {
		momentum = "0" // row-sparse tables have no momentum
	}
	return append(out, setting.Assignment{Path: "training.optimizer", Text: "sgd"}, setting.Assignment{Path: "training.lr", Text: "0.005"},
		setting.Assignment{Path: "training.momentum", Text: momentum}, setting.Assignment{Path: "training.weight-decay", Text: "0"})
}

func (c *command) execute(cmd *cobra.Command, model string) error {
	spec, err := models.Lookup(model)
	if err != nil {
		return cli.Usage(err)
	}
	faults := cli.Faults(c.Check(cmd, model, likePyTorch(spec)...))
	faults.Range("steps", c.steps, 1, mostSteps)
	if err := faults.Usage(); err != nil {
		return err
	}
	cfg := c.Config()
	if cfg.Batch > randbatch.MostSamples {
		return cli.Usagef("--batch %d: want at most %d", cfg.Batch, randbatch.MostSamples)
	}
	if err := c.CheckOutputs(c.json); err != nil {
		return err
	}
	return c.Run(cmd, func(job *ringo.Job) error {
		return c.Traced(cmd, job, func(traced bool) error {
			cfg := c.Config() // each rank has found its cores
			cfg.Traced = traced
			return bench.WithOutput(cmd, job, c.json, func(out *cli.Output) error { return c.rank(job, cfg, out) })
		})
	})
}

func (c *command) rank(job *ringo.Job, cfg train.Config, out *cli.Output) error {
	r, err := c.measure(job, cfg)
	if err != nil {
		return err
	}
	err = out.Result(r, "%s", r)
	for _, l := range r.Layers {
		out.Line("  %-40s density %.4f  threshold %.3g  residual norm %.3g", l.Name, l.Density, l.Threshold, l.ResidualNorm)
	}
	return err
}

func (r result) String() string {
	rate, unit := r.SamplesPerS, "samples"
	if r.TokensPerS.Known {
		rate, unit = r.TokensPerS.Value, "tokens"
	}
	text := fmt.Sprintf("step %s  batch %d x %s  %s, plan %s (%s)  median %.3f ms  %.0f %s/s  compute %.3f + compress %.3f + exposed %.3f + update %.3f ms",
		r.Model, r.Batch, cli.Counted(r.NP, "rank"), r.Strategy, r.Plan, cli.Counted(r.Buckets, "bucket"), r.StepMS, rate, unit, r.ComputeMS, r.CompressMS, r.ExposedCommMS, r.UpdateMS)
	if r.StepExactMS.Known && r.StepReuseMS.Known {
		text += fmt.Sprintf("  exact %.3f, reuse %.3f ms", r.StepExactMS.Value, r.StepReuseMS.Value)
	}
	return text + r.choice.String() + fmt.Sprintf("  density %.4g  %s bytes sent  %.1f allocations  memory +%.1f MiB",
		r.Density, cli.Grouped(int(r.BytesSent)), r.AllocsPerStep, float64(r.RSSGrowthBytes)/(1<<20))
}

// cost is the resources of a process's steps other than time.
type cost struct {
	allocs, rss float64
}

func (c *command) measure(job *ringo.Job, cfg train.Config) (result, error) {
	before := usage.Proportional()
	replica, err := train.NewReplica(job, cfg, model.Options{})
	if err != nil {
		return result{}, err
	}
	defer replica.Close()
	batch := randbatch.Batch(replica.Spec, replica.Params, cfg.Batch, job.Rank())
	warm := max(3, c.steps/10)
	times := newStepTimes(c.steps)
	var start, end runtime.MemStats
	var watch train.StepTimer
	if err := tuned(job, replica, batch); err != nil {
		return result{}, err
	}
	for i := range warm + c.steps {
		if err := context.Cause(job.Context()); err != nil {
			return result{}, err // a group of one rank would not detect the cancellation
		}
		if i == warm {
			runtime.ReadMemStats(&start)
		}
		job.Recorder().BeginStep(int64(i))
		watch.Begin(time.Now())
		if _, err := replica.Backward(replica.Batch(batch), true); err != nil {
			return result{}, err
		}
		watch.Ready(time.Now())
		if err := replica.Step(); err != nil {
			return result{}, err
		}
		if spent := watch.End(time.Now(), replica.Opt.Times()); i >= warm {
			times.add(spent)
		}
	}
	runtime.ReadMemStats(&end)
	spent := cost{float64(end.Mallocs-start.Mallocs) / float64(c.steps), float64(usage.Proportional() - before)}
	return c.result(job, cfg, replica, times, spent)
}

func (c *command) result(job *ringo.Job, cfg train.Config, replica *train.Replica, times *stepTimes, spent cost) (result, error) {
	most, err := bench.Slowest(job.Group(), []float64{spent.allocs, spent.rss})
	if err != nil {
		return result{}, err
	}
	if err := times.ofSlowest(job.Group()); err != nil {
		return result{}, err
	}
	o, whole := replica.Opt, times.parts[wholePart]
	r := result{
		Bench: "step", Model: cfg.Name, Batch: cfg.Batch, NP: job.Size(), Servers: job.Servers(), Threads: cfg.Threads,
		StepMeanMS: bench.Mean(whole), BreakDown: times.breakDown(), BytesSent: int64(times.bytes) / int64(c.steps),
		Params: replica.Params.Count(), Steps: c.steps, Optimizer: cfg.Optimizer,
		Strategy: string(o.Strategy()), Plan: o.PlanName(), Buckets: len(o.Plan()), Kernels: replica.Kernels(),
		AllocsPerStep: most[0], RSSGrowthBytes: int64(most[1]), choice: choiceOf(replica),
	}
	r.StepMS = median.Of(whole)
	r.SamplesPerS = 1e3 * float64(cfg.Batch*job.Size()) / r.StepMS
	if replica.Spec.Task == model.Language {
		r.TokensPerS = train.OptionalFloat{Value: r.SamplesPerS * float64(replica.Spec.Labels), Known: true}
	}
	if c.layers {
		r.Layers = replica.Layers()
	}
	return r, nil
}
