package steps

import (
	"github.com/spf13/cobra"

	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench/benchtest"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cli/commandtest"
	"github.com/ringo-ml/ringo/internal/median"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/train"
)

// syntheticStep took so many milliseconds in all, with a tenth each for update and
// compression, three tenths exposed.
func syntheticStep(whole float64, kind train.StepKind) train.StepTimes {
	of := func(share float64) time.Duration {
		return time.Duration(share * whole * float64(time.Millisecond))
	}
	return train.StepTimes{Whole: of(1), Compute: of(0.5), Kind: kind,
		StepTimes: distopt.StepTimes{Compress: of(0.1), Exposed: of(0.3), Update: of(0.1), BytesSent: 1000, Density: 0.25}}
}

// The parts of a step add up to the median, however long a few steps took.
func TestBreakDownAddsUp(t *testing.T) {
	for _, c := range []struct {
		steps []float64
		want  float64 // ms
	}{
		{[]float64{10}, 10},
		{[]float64{10, 20}, 15},
		{[]float64{10, 1000, 12}, 12},
		{[]float64{10, 10.2, 9.9, 5000, 10.1, 3, 10, 10}, 10},
		{[]float64{10, 10.05, 9.96, 400, 410, 420, 430}, 400}, // a machine that others use, too
		{[]float64{10, 10, 10, 400, 400, 400}, 205},
	} {
		times := newStepTimes(len(c.steps))
		for _, s := range c.steps {
			times.add(syntheticStep(s, train.OtherStep))
		}
		b := times.breakDown()
		sum := b.ComputeMS + b.CompressMS + b.ExposedCommMS + b.UpdateMS
		m := median.Of(times.parts[wholePart])
		if math.Abs(sum-m) > 0.01*m || math.Abs(sum-c.want) > 0.01*c.want || math.Abs(b.ExposedCommMS-0.3*sum) > 1e-6*sum || b.Density != 0.25 {
			t.Errorf("steps of %v ms: %+v, sum %v, median %v, want %v", c.steps, b, sum, m, c.want)
		}
	}
}

func TestExactAndReuseStepsApart(t *testing.T) {
	times := newStepTimes(4)
	times.add(syntheticStep(30, train.ExactStep))
	times.add(syntheticStep(10, train.ReuseStep))
	times.add(syntheticStep(12, train.ReuseStep))
	times.add(syntheticStep(20, train.OtherStep))
	if b := times.breakDown(); b.StepExactMS.Value != 30 || b.StepReuseMS.Value != 11 {
		t.Errorf("%+v, want 30 and 11 ms", b)
	}
	dense := newStepTimes(1)
	dense.add(syntheticStep(30, train.OtherStep))
	if b := dense.breakDown(); b.StepExactMS.Known || b.StepReuseMS.Known {
		t.Errorf("a strategy that reuses nothing has %+v", b)
	}
}

// Each step is that of the rank that took longest for it, as a whole.
func TestTimesOfTheSlowestRank(t *testing.T) {
	steps := [3][]float64{{10, 40, 10}, {20, 30, 10}, {15, 10, 50}} // by rank
	err := ringo.Local(context.Background(), 3, ringo.Config{}, func(job *ringo.Job) error {
		times := newStepTimes(3)
		for _, s := range steps[job.Rank()] {
			one := syntheticStep(s, train.OtherStep)
			one.BytesSent = int64(100 * job.Rank())
			times.add(one)
		}
		if err := times.ofSlowest(job.Group()); err != nil {
			return err
		}
		for i, want := range []float64{20, 40, 50} {
			if times.parts[wholePart][i] != want || math.Abs(times.parts[computePart][i]-want/2) > 1e-6 {
				return fmt.Errorf("step %d: %v ms with %v of computing, want %v and half of it", i, times.parts[wholePart][i], times.parts[computePart][i], want)
			}
		}
		if times.bytes != 300 || times.density != 0.75 {
			return fmt.Errorf("%v bytes and density %v over all steps, want 300 and 0.75", times.bytes, times.density)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

const fields = "bench model batch np threads step_ms step_mean_ms samples_per_s compute_ms compress_ms exposed_comm_ms update_ms density bytes_sent params steps optimizer strategy plan buckets kernels allocs_per_step rss_growth_bytes plan_sha256"

// A step's figures fit each other, whatever is exchanged.
func TestBenchStep(t *testing.T) {
	for strategy, plan := range map[distopt.Strategy]string{distopt.FP32: "fixed", distopt.PartialUpdate: "one"} {
		ranks := &benchtest.Trainers{Exchange: func(c *train.Config) { c.Exchange.Strategy, c.Exchange.Plan = strategy, plan }}
		status, out, errs := commandtest.Run(Command(ranks), "mlp --batch 4 --np 2 --steps 3 --json -")
		if status != 0 || !strings.HasPrefix(errs, "step mlp  batch 4 x 2 ranks") {
			t.Fatalf("%s: status %d, stderr %q", strategy, status, errs)
		}
		got := commandtest.JSON(t, out, fields)[0]
		for name, want := range map[string]any{
			"bench": "step", "model": "mlp", "batch": 4., "np": 2., "params": 79510., "steps": 3., "strategy": string(strategy), "plan": plan, "optimizer": "sgd",
		} {
			if got[name] != want {
				t.Errorf("%s: %s is %v, want %v", strategy, name, got[name], want)
			}
		}
		if ms, perS := got["step_ms"].(float64), got["samples_per_s"].(float64); ms <= 0 || math.Abs(perS*ms/1e3-8) > 1e-6 {
			t.Errorf("%s: %v samples a second in steps of %v ms", strategy, perS, ms)
		}
	}
}

func TestBenchStepRefuses(t *testing.T) {
	for line, want := range map[string]string{
		"":                           "needs a model, for instance `step mnist`",
		"mnist mlp":                  "takes one model",
		"mnits":                      `did you mean "mnist"?`,
		"mlp --steps 0 --np 0":       "--np 0; --steps 0: want 1 to 1000000",
		"mlp --batch 70000":          "--batch 70000: want at most 65536",
		"mlp --batch 0":              "batch 0",
		"mlp --json /nowhere/x.json": "",
	} {
		status := cli.UsageError
		if want == "" {
			status, want = cli.Failed, "/nowhere/x.json"
		}
		commandtest.Refused(t, Command(&benchtest.Trainers{}), status, line, want)
	}
}

// What is measured is what the comparison with PyTorch measures there.
func TestLikePyTorch(t *testing.T) {
	for model, want := range map[string]struct {
		optimizer    string
		lr, momentum float64
	}{"mnist": {"sgd", 0.005, 0.9}, "ctr-dnn": {"sgd", 0.005, 0}} {
		spec, err := models.Lookup(model)
		if err != nil {
			t.Fatal(err)
		}
		ranks := &benchtest.Trainers{}
		cmd := &cobra.Command{}
		ranks.Register(cmd)
		if errs := ranks.Check(cmd, model, likePyTorch(spec)...); len(errs) > 0 {
			t.Fatal(errs)
		}
		if cfg := ranks.Config(); cfg.Optimizer != want.optimizer || cfg.LR != want.lr || cfg.Momentum != want.momentum || cfg.WeightDecay != 0 {
			t.Errorf("%s: %s of %v and %v", model, cfg.Optimizer, cfg.LR, cfg.Momentum)
		}
	}
	for _, spec := range models.All() {
		if spec.Defaults.Optimizer != "adamw" {
			continue
		}
		if usual := likePyTorch(spec); len(usual) != 1 || usual[0].Path != "training.clip-norm" {
			t.Errorf("%s: %v, want the model's own, without clipping", spec.Name, usual)
		}
	}
}
