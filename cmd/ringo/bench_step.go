package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/train"
)

// stepBench is `ringo bench step MODEL`.
type stepBench struct {
	jobFlags
	cfg   train.Config
	steps int
	json  string
}

// What a step's inputs and the list of times may take.
const (
	maxSteps = 1_000_000
	maxBatch = 1 << 16
)

// stepResult is its line of JSON. Times are medians over steps.
type stepResult struct {
	Bench         string  `json:"bench"` // "step"
	Model         string  `json:"model"`
	Batch         int     `json:"batch"` // per rank
	NP            int     `json:"np"`
	Threads       int     `json:"threads"` // per rank
	StepMS        float64 `json:"step_ms"` // of the slowest rank
	SamplesPerS   float64 `json:"samples_per_s"`
	ExposedCommMS float64 `json:"exposed_comm_ms"` // mean over ranks
	Params        int     `json:"params"`
	Steps         int     `json:"steps"`
	Strategy      string  `json:"strategy"`
	Plan          string  `json:"plan"`
	Kernels       string  `json:"kernels"`
}

func newBenchStep() *cobra.Command {
	c := &stepBench{cfg: train.Defaults("", train.Synthetic)}
	cmd := &cobra.Command{
		Use:     "step MODEL",
		Short:   "Time the whole training step: forward, backward, exchange, update",
		Example: "  ringo bench step mnist --batch 64 --np 2 --threads 1 --json -",
		Args:    oneModel,
		RunE: func(cmd *cobra.Command, args []string) error {
			c.cfg.Model = args[0]
			return c.execute(cmd)
		},
	}
	fs := cmd.Flags()
	c.register(fs)
	fs.IntVar(&c.cfg.Batch, "batch", c.cfg.Batch, "samples per rank")
	fs.IntVar(&c.steps, "steps", 100, "steps to measure, after a tenth as many to warm up")
	fs.StringVar((*string)(&c.cfg.Exchange.Strategy), "strategy", string(distopt.FP32), "what the ranks exchange: "+strategyList())
	fs.StringVar(&c.cfg.Exchange.Plan, "plan", distopt.PlanFixed, "how layers are merged into buckets")
	fs.IntVar(&c.cfg.Exchange.BucketBytes, "bucket-bytes", 0, "bytes of a bucket with --plan fixed; 0: the default")
	fs.StringVar(&c.json, "json", "", "write the result as a JSON object to `FILE`, or to stdout with -")
	return cmd
}

func (c *stepBench) execute(cmd *cobra.Command) error {
	errs := c.check(cmd)
	c.cfg.Threads = c.computeThreads()
	errs = append(errs, c.cfg.Validate())
	if c.steps < 1 || c.steps > maxSteps {
		errs = append(errs, fmt.Errorf("--steps %d: want 1 to %d", c.steps, maxSteps))
	}
	if c.cfg.Batch > maxBatch {
		errs = append(errs, fmt.Errorf("--batch %d: want at most %d", c.cfg.Batch, maxBatch))
	}
	if err := errors.Join(errs...); err != nil {
		return usageError{err}
	}
	return c.run(cmd, func(job *ringo.Job) error {
		out, err := openBench(cmd, job, c.json)
		if err != nil {
			return err
		}
		r, err := c.measure(job)
		if err == nil {
			err = out.result(r, "step %s  batch %d x %s  median %.3f ms  %.0f samples/s  %.3f ms exposed",
				r.Model, r.Batch, counted(r.NP, "rank"), r.StepMS, r.SamplesPerS, r.ExposedCommMS)
		}
		return errors.Join(err, out.close())
	})
}

func (c *stepBench) measure(job *ringo.Job) (stepResult, error) {
	replica, err := train.NewReplica(job.Group(), c.cfg, c.cfg.Batch)
	if err != nil {
		return stepResult{}, err
	}
	defer replica.Close()
	x, labels := replica.Batch(c.cfg.Batch)
	if err := randomBatch(x.Data, labels, c.cfg.Model, job.Rank()); err != nil {
		return stepResult{}, err
	}
	warm := max(3, c.steps/10)
	ms, exposed := make([]float64, c.steps), make([]float64, c.steps)
	for i := range warm + c.steps {
		if err := context.Cause(job.Context()); err != nil {
			return stepResult{}, err // a group of one rank would not notice
		}
		start := time.Now()
		replica.Backward(x, labels, true)
		if err := replica.Step(); err != nil {
			return stepResult{}, err
		}
		if i >= warm {
			ms[i-warm] = 1e3 * time.Since(start).Seconds()
			exposed[i-warm] = 1e3 * replica.Opt.Exposed().Seconds()
		}
	}
	return c.result(job, replica, ms, exposed)
}

func (c *stepBench) result(job *ringo.Job, replica *train.Replica, ms, exposed []float64) (stepResult, error) {
	ms, err := slowest(job.Group(), ms)
	if err != nil {
		return stepResult{}, err
	}
	if exposed, err = meanOf(job.Group(), exposed); err != nil {
		return stepResult{}, err
	}
	step := median(ms)
	return stepResult{
		Bench: "step", Model: c.cfg.Model, Batch: c.cfg.Batch, NP: job.Size(), Threads: c.cfg.Threads,
		StepMS: step, SamplesPerS: 1e3 * float64(c.cfg.Batch*job.Size()) / step, ExposedCommMS: median(exposed),
		Params: replica.Params.Count(), Steps: c.steps, Strategy: string(replica.Opt.Strategy()), Plan: replica.Opt.PlanName(),
		Kernels: replica.Kernels(),
	}, nil
}

// randomBatch makes an input of noise: the time of a step does not depend on
// what is in it.
func randomBatch(x []float32, labels []int32, model string, rank int) error {
	spec, err := models.Lookup(model)
	if err != nil {
		return err
	}
	rnd := rand.New(rand.NewPCG(1, uint64(rank)))
	for i := range x {
		x[i] = float32(rnd.NormFloat64())
	}
	for i := range labels {
		labels[i] = int32(rnd.IntN(spec.Classes))
	}
	return nil
}
