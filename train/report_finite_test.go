package train

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/heter"
	keeper "github.com/ringo-ml/ringo/internal/server"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	kept "github.com/ringo-ml/ringo/ps/offline"
)

// burst is an operation without an effect on the loss. Its backward pass of a number, counted from
// 1 over all ranks, gives gradients that are infinite: of its parameters, or else of its input.
func burst(of int64) *nn.Operation {
	var passes atomic.Int64
	return &nn.Operation{Name: "burst", Forward: func(p *nn.Pass) { copy(p.Output.Data, p.Inputs[0].Data) }, Backward: func(p *nn.Pass) {
		for i, g := range p.OutputGrad {
			if p.InputGrads[0] != nil {
				p.InputGrads[0][i] += g
			}
		}
		if passes.Add(1) != of {
			return
		}
		for _, w := range p.Params {
			w.Grad[0] = float32(math.Inf(1))
		}
		for i := range p.InputGrads[0] {
			if len(p.Params) == 0 { // of all samples: some have no keys
				p.InputGrads[0][i] = float32(math.Inf(1))
			}
		}
	}}
}

// bursting is keyed with a burst in the rows that it looks up, or in its dense layer.
func bursting(keys []uint64, where string, of int64) model.Spec {
	s := keyed(keys)
	op := burst(of)
	s.Build = func(ps *nn.Params, o model.Options) model.Model {
		deep, out := ps.NewTable("deep", nn.UniformRows(0.5), o.Rows, 3), ps.Dense("out", 9, 1)
		extra := ps.New("extra", nn.Zeros, 4)
		dense := func(t *nn.Tape, x []*nn.Tensor) *nn.Tensor {
			y := t.Dense(x[0], out, nn.Identity)
			if where == "dense" {
				y = t.Apply(op, y.Shape, []*nn.Tensor{y}, extra)
			}
			return y
		}
		return model.Model{
			Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
				x := t.EmbeddingBag(b.Bags, deep, nn.MeanPool, nil)
				if where == "rows" {
					x = t.Apply(op, x.Shape, []*nn.Tensor{x})
				}
				return model.Outputs{t.OnDevice(heter.DeviceName, dense, x)}
			},
			Loss: model.BinaryCrossEntropy, Metrics: []model.Metric{model.LogLoss()},
		}
	}
	return s
}

// endsFinite checks a run that has failed: each rank's error names the gradient or the rank that
// had it, and what was saved last is evaluated to a finite loss.
func endsFinite(t *testing.T, what, want string, cfg Config, clean model.Spec, set *data.Dataset, errs ...error) {
	t.Helper()
	named := slices.ContainsFunc(errs, func(err error) bool { return err != nil && strings.Contains(err.Error(), want) })
	if !named {
		t.Errorf("%s: %v, want %q", what, errs, want)
	}
	for _, err := range errs {
		if err != nil && strings.Contains(err.Error(), "the loss is NaN") {
			t.Errorf("%s: values that are not finite reached another rank: %v", what, err)
		}
	}
	steps, err := checkpoint.Steps(cfg.Checkpoint.Dir)
	if err != nil || len(steps) == 0 {
		t.Fatalf("%s: checkpoints %v, %v", what, steps, err)
	}
	cfg.Model, cfg.Servers = clean, Servers{OpenServerCheckpoint: func(dir string, step uint64, numbers []uint64) (ServerCheckpoint, error) {
		return kept.At(dir, step, numbers)
	}}
	err = ringo.Local(t.Context(), 1, ringo.Config{}, func(job *ringo.Job) error {
		e, err := Evaluate(t.Context(), job, clean, set, cfg)
		if err == nil && !finite(e.EvalLoss) {
			t.Errorf("%s: the loss of checkpoint %d is %v", what, steps[len(steps)-1], e.EvalLoss)
		}
		return err
	})
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// A finite loss with an infinite gradient ends the run with an error that names the layer or the
// table; the value is neither pushed to a server nor saved, whoever moves the parameters.
func TestInfiniteGradientIsNamed(t *testing.T) {
	set, keys := keyedSet(t)
	clean := bursting(keys, "", 1)
	for where, want := range map[string]string{"rows": "the gradient of table deep is not finite", "dense": "the gradient of layer extra is +Inf"} {
		for np := 1; np <= 3; np++ {
			for _, strategy := range []distopt.Strategy{distopt.FP32, distopt.PartialUpdate} {
				cfg := keyedConfig(keys)
				cfg.Model, cfg.Exchange.Strategy, cfg.Checkpoint = bursting(keys, where, int64(6*np)), strategy, Checkpoint{Dir: t.TempDir(), Every: 2}
				err := ringo.Local(context.Background(), np, ringo.Config{}, func(job *ringo.Job) error {
					_, err := Run(job.Context(), job, cfg.Model, set, cfg)
					return err
				})
				endsFinite(t, fmt.Sprintf("%s on %d ranks, %s", where, np, strategy), want, cfg, clean, set, err)
			}
		}
		for _, mode := range []string{"bsp", "ssp", "async", "geo"} {
			cfg := keyedConfig(keys)
			cfg.Model, cfg.Servers.Consistency, cfg.Servers.Start, cfg.Checkpoint = bursting(keys, where, 12), mode, 1, Checkpoint{Dir: t.TempDir(), Every: 2}
			_, _, _, errs := serveRun(t, 2, 2, cfg, set, func(c *keeper.Config) {
				c.Dir, c.Job = AttemptDir(cfg.Checkpoint.Dir, 1), JobName(1, 0)
			})
			endsFinite(t, where+" in "+mode, want, cfg, clean, set, errs...)
		}
	}
}

// A run that skips the step of an infinite gradient names the layer or the table, counts the step,
// and has a finite result.
func TestInfiniteGradientIsSkipped(t *testing.T) {
	set, keys := keyedSet(t)
	for where, want := range map[string]string{"rows": "the gradient of table deep is not finite", "dense": "the gradient of layer extra is +Inf"} {
		for np := 1; np <= 3; np++ {
			for _, strategy := range []distopt.Strategy{distopt.FP32, distopt.FP16, distopt.DLGS, distopt.PartialUpdate} {
				cfg, rec := keyedConfig(keys), new(recorder)
				cfg.Exchange.Strategy, cfg.Exchange.NonFinite = strategy, "skip"
				spec := bursting(keys, where, int64(6*np))
				err := ringo.Local(context.Background(), np, ringo.Config{}, func(job *ringo.Job) error {
					c := cfg
					if job.Rank() == 0 {
						c.Observer = rec
					}
					s, err := Run(job.Context(), job, spec, set, c)
					if err == nil && (s.Skipped != 1 || !finite(s.EvalLoss) || !finite(s.TrainLoss)) {
						t.Errorf("%s on %d ranks, %s: %+v", where, np, strategy, s)
					}
					return err
				})
				named := slices.ContainsFunc(rec.remarks, func(m Remark) bool {
					return strings.Contains(m.Text, want) || strategy == distopt.FP16 && strings.Contains(m.Text, `parameter "extra": the sum over the ranks is +Inf`)
				})
				if err != nil || !named {
					t.Errorf("%s on %d ranks, %s: %v, %v, want %q", where, np, strategy, err, rec.remarks, want)
				}
			}
		}
	}
}
