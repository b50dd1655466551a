package train

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// union trains one replica on the samples of each step of all ranks in one batch, and returns its loss of evaluation.
func union(t *testing.T, set *data.Dataset, cfg Config, np int) (loss float64) {
	t.Helper()
	n, k := set.Train.Len(), max(1, cfg.Exchange.Accumulation)
	spec := shaped(mine(), set.Eval.Shape())
	spec.Classes = set.Classes
	own := Defaults(spec, "")
	own.SetOptimizer(cfg.Optimizer)
	own.Seed, own.LR, own.Momentum, own.Batch, own.Exchange.ClipNorm = cfg.Seed, cfg.LR, cfg.Momentum, n, cfg.Exchange.ClipNorm
	err := ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) error {
		r, err := NewReplica(job, own, model.Options{Input: spec.Input, Classes: set.Classes})
		if err != nil {
			return err
		}
		defer r.Close()
		var b data.Batch
		samplers := make([]data.Sampler, np)
		for rank := range samplers {
			if samplers[rank], err = data.NewSampler(data.SamplerConfig{N: n, Batch: cfg.Batch, Rank: rank, Size: np, Seed: own.Seed}); err != nil {
				return err
			}
		}
		for epoch := 1; epoch <= cfg.Epochs; epoch++ {
			for _, s := range samplers {
				s.Start(epoch)
			}
			for left := samplers[0].Steps(); left > 0; left -= k {
				var all []int32
				for range min(k, left) {
					for _, s := range samplers {
						idx, _ := s.Next()
						all = append(all, idx...)
					}
				}
				if err := set.Train.Fill(&b, all, data.Draw{}); err != nil {
					return err
				}
				if _, err := r.Backward(r.Batch(&b), true); err != nil {
					return err
				}
				if err := r.Step(); err != nil {
					return err
				}
			}
		}
		all := make([]int32, set.Eval.Len())
		for i := range all {
			all[i] = int32(i)
		}
		if err := set.Eval.Fill(&b, all, data.Draw{}); err != nil {
			return err
		}
		res, err := r.Evaluate(r.Batch(&b))
		loss = lossOf(res)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return loss
}

// The last step of an epoch has the samples that are left, and its update is made with their mean, for any number of ranks and
// accumulated batches.
func TestLastStepHasTheRest(t *testing.T) {
	for _, c := range []struct {
		n, np, batch, k, steps int
		change                 func(*Config)
	}{
		{61, 1, 16, 1, 4, nil}, {61, 2, 16, 1, 2, nil}, {61, 3, 7, 1, 3, nil}, {65, 2, 16, 1, 3, nil}, {61, 2, 5, 3, 3, nil}, {61, 1, 4, 5, 4, nil},
		{61, 2, 5, 3, 3, func(c *Config) { c.Exchange.ClipNorm = 0.05 }},
		{61, 2, 5, 3, 3, func(c *Config) { c.Exchange.Update = distopt.UpdateWhole }},
		{61, 2, 5, 2, 4, func(c *Config) { c.Exchange.Strategy, c.Exchange.Spars = distopt.TopK, 1 }},
	} {
		all := stripes(t, 200)
		set := &data.Dataset{Name: "stripes", Train: firstOf{all.Train, c.n}, Eval: all.Eval, Classes: 2}
		cfg := Config{Optimizer: "sgd", LR: 0.8, Momentum: 0.5, Batch: c.batch, Epochs: 3}
		cfg.Exchange.Accumulation = c.k
		if c.change != nil {
			c.change(&cfg)
		}
		want, rec := union(t, set, cfg, c.np), new(recorder)
		var got Summary
		err := ringo.Local(context.Background(), c.np, ringo.Config{}, func(job *ringo.Job) error {
			own := cfg
			if job.Rank() == 0 {
				own.Observer = rec
			}
			s, err := Run(job.Context(), job, mine(), set, own)
			if job.Rank() == 0 {
				got = s
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got.EvalLoss-want) > 2e-6 || rec.info.StepsPerEpoch != c.steps || rec.info.Omitted != 0 {
			t.Errorf("%+v: evaluation loss %v in %d steps, %d omitted: the union's is %v, in %d", c, got.EvalLoss, rec.info.StepsPerEpoch, rec.info.Omitted, want, c.steps)
		}
	}
}

// firstOf is a source's first n samples.
type firstOf struct {
	data.Source
	n int
}

func (f firstOf) Len() int { return f.n }

// A run names the samples that its epochs have no step for, and why.
func TestOmittedSamplesAreNamed(t *testing.T) {
	large, small := stripes(t, 400), stripes(t, 130)
	_, info, err := fixed(Config{LR: 0.1, Batch: 16, Epochs: 1}, large, small)
	steps := (small.Train.Len() + 15) / 16
	want := large.Train.Len() - steps*16
	if text := fmt.Sprintf("each epoch omits %d of %d training samples", want, info.TrainSamples); err != nil || info.Omitted != want || !strings.Contains(strings.Join(info.DataNotes, "\n"), text) {
		t.Errorf("%d omitted, %q, %v: want %d", info.Omitted, info.DataNotes, err, want)
	}
	cfg := Defaults(zoo("mlp"), data.Synthetic)
	cfg.TrainLimit, cfg.EvalLimit, cfg.Epochs, cfg.Batch = 33, 10, 1, 1
	if _, rec := onRanks(t, 2, cfg); rec.info.Omitted != 1 || !strings.Contains(strings.Join(rec.info.DataNotes, "\n"), "omits 1 of 33") {
		t.Errorf("a batch of 1: %d omitted, %q", rec.info.Omitted, rec.info.DataNotes)
	}
	cfg.Batch = 4
	if _, rec := onRanks(t, 2, cfg); rec.info.Omitted != 0 || rec.info.StepsPerEpoch != 5 {
		t.Errorf("a batch of 4: %d omitted in %d steps", rec.info.Omitted, rec.info.StepsPerEpoch)
	}
}

// A run with dropout that goes on after any step has the bits of one that never stopped, however short its last steps are.
func TestRestResumesWithDropout(t *testing.T) {
	spec := mine()
	spec.Drops = true
	spec.Build = func(ps *nn.Params, o model.Options) model.Model {
		out := ps.Dense("out", o.Input[0], o.Classes)
		return model.Model{
			Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
				return model.Outputs{t.Dense(t.Dropout(b.Values, 0.5), out, nn.Identity)}
			},
			Loss: model.CrossEntropy, Metrics: []model.Metric{model.Accuracy()},
		}
	}
	all := stripes(t, 200)
	set := &data.Dataset{Name: "stripes", Train: firstOf{all.Train, 61}, Eval: all.Eval, Classes: 2}
	once := func(c Checkpoint) (hash string) {
		err := ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) error {
			cfg := Config{LR: 0.5, Batch: 5, Epochs: 3, Checkpoint: c}
			cfg.Exchange.Accumulation = 3
			s, err := Run(job.Context(), job, spec, set, cfg)
			if job.Rank() == 0 {
				hash = s.ParamsSHA256
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return hash
	}
	dir := t.TempDir()
	want := once(Checkpoint{Dir: dir, Every: 1, Keep: 100})
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(files) < 7 {
		t.Fatalf("%d checkpoints", len(files))
	}
	for _, file := range files {
		if got := once(Checkpoint{Dir: onlyFile(t, file), Resume: true}); got != want {
			t.Errorf("from %s: %s, want %s", filepath.Base(file), got, want)
		}
	}
}
