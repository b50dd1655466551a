package train

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// TestWeightsOfClasses: balanced weights are scikit-learn's, weights by name have a mean of 1 over
// the samples, and a class without samples changes none.
func TestWeightsOfClasses(t *testing.T) {
	names := []string{"ok", "fraud", "a=b", "none"}
	counts := []int64{60, 30, 10, 0}
	for text, want := range map[string][]float64{
		"balanced":           {100. / 3 / 60, 100. / 3 / 30, 100. / 3 / 10, 1},
		"fraud=4":            {1 / 1.9, 4 / 1.9, 1 / 1.9, 1},
		"a=b=2,fraud=4":      {1 / 2.0, 4 / 2.0, 2 / 2.0, 1},
		"none=7,ok=3":        {3 / 2.2, 1 / 2.2, 1 / 2.2, 1},
		"ok=2,fraud=2,a=b=2": {1, 1, 1, 1},
	} {
		got, note, err := weightsOf(text, names, counts)
		if err != nil || len(got) != 4 {
			t.Fatalf("%s: %v, %v", text, got, err)
		}
		mean := 0.0
		for k, w := range got {
			if math.Abs(float64(w)-want[k]) > 1e-6 {
				t.Errorf("%s: class %d has %v, want %v", text, k, w, want[k])
			}
			mean += float64(w) * float64(counts[k]) / 100
		}
		if math.Abs(mean-1) > 1e-6 || !strings.Contains(note, "fraud ") || !strings.Contains(note, "(30 rows)") || strings.Contains(note, "none") {
			t.Errorf("%s: mean %v, note %q", text, mean, note)
		}
	}
	if _, _, err := weightsOf("frauds=4", names, counts); err == nil || !strings.Contains(err.Error(), `training.class-weights frauds=4: there is no class "frauds" among 4 classes (ok, fraud, a=b, none)`) {
		t.Errorf("an unknown class: %v", err)
	}
	if _, note, err := weightsOf("7=2", nil, make([]int64, 30)); err == nil {
		t.Errorf("no rows: %q", note)
	}
}

// TestEqualWeightsChangeNothing: equal weights of all classes have the bits of a run without
// weights; smoothing and other weights have other bits, and evaluations have the same loss for the
// same parameters.
func TestEqualWeightsChangeNothing(t *testing.T) {
	plain := custom(tinyNorm())
	plain.Epochs = 1
	want, _ := onRanks(t, 2, plain)
	equal := plain
	var all []string
	for k := range 10 {
		all = append(all, string(rune('0'+k))+"=2")
	}
	equal.ClassWeights = strings.Join(all, ",")
	if got, rec := onRanks(t, 2, equal); got.ParamsSHA256 != want.ParamsSHA256 || got.EvalLoss != want.EvalLoss || !strings.Contains(strings.Join(rec.info.DataNotes, "\n"), "weights of classes in the training loss") {
		t.Errorf("equal weights: sha256 %s, want %s; notes %q", got.ParamsSHA256, want.ParamsSHA256, rec.info.DataNotes)
	}
	weighted, smoothed := plain, plain
	weighted.ClassWeights, smoothed.LabelSmoothing = "3=9", 0.2
	for _, cfg := range []Config{weighted, smoothed} {
		cfg.Checkpoint.Dir = filepath.Join(t.TempDir(), "saved")
		got, _ := onRanks(t, 2, cfg)
		if got.ParamsSHA256 == want.ParamsSHA256 {
			t.Errorf("%+v changes no parameter", cfg.lossSettings())
		}
		cfg.ClassWeights, cfg.LabelSmoothing = "", 0
		if e := evaluatedBy(t, 2, cfg); e.EvalLoss != got.EvalLoss {
			t.Errorf("an evaluation of the run's checkpoint has a loss of %v, the run %v", e.EvalLoss, got.EvalLoss)
		}
	}
}

// ownClasses is a set of samples of which a share has class 1.
func ownClasses(t *testing.T, n, rare int) *data.Dataset {
	t.Helper()
	b := data.Batch{N: n}
	for i := range n {
		b.Values, b.Labels = append(b.Values, float32(i%7), float32(i)), append(b.Labels, 0)
		if i < rare {
			b.Labels[i] = 1
		}
	}
	src, err := data.FromBatch(data.Shape{Values: []int{2}, Labels: 1}, b)
	if err != nil {
		t.Fatal(err)
	}
	return &data.Dataset{Name: "own", Train: src, Eval: src, Classes: 2, Words: []string{"ok", "fraud"}}
}

func ownClassifier() model.Spec {
	return model.Spec{Name: "own", Build: func(ps *nn.Params, o model.Options) model.Model {
		out := ps.Dense("out", 2, o.Classes)
		return model.Model{Loss: model.CrossEntropy, Metrics: []model.Metric{model.Accuracy()}, Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
			return model.Outputs{t.Dense(b.Values, out, nn.Identity)}
		}}
	}}
}

// TestBalancedWeightsCountAllRanks: ranks with samples of their own count the samples of all ranks,
// those of a shared set once.
func TestBalancedWeightsCountAllRanks(t *testing.T) {
	for want, sets := range map[string][][2]int{
		"ok 0.5556 (90 rows), fraud 5 (10 rows)": {{60, 10}, {40, 0}},
		"ok 0.5556 (54 rows), fraud 5 (6 rows)":  {{60, 6}, {60, 6}},
	} {
		recs := make([]*recorder, len(sets))
		err := ringo.Local(context.Background(), len(sets), ringo.Config{}, func(job *ringo.Job) error {
			s := sets[job.Rank()]
			recs[job.Rank()] = new(recorder)
			cfg := Config{Batch: 10, Epochs: 1, LR: 0.01, Partition: PartitionFixed, ClassWeights: balancedWeights, Observer: recs[job.Rank()]}
			_, err := Run(context.Background(), job, ownClassifier(), ownClasses(t, s[0], s[1]), cfg)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for rank, r := range recs {
			if notes := strings.Join(r.info.DataNotes, "\n"); !strings.Contains(notes, want) {
				t.Errorf("rank %d of sets %v: %q, want %s", rank, sets, notes, want)
			}
		}
	}
}

// TestWeightedLossDoesNotDependOnRanks: the loss of the first step of 60 samples, in one batch or
// in 2 or 3, is the weighted mean.
func TestWeightedLossDoesNotDependOnRanks(t *testing.T) {
	var losses []float64
	for _, np := range []int{1, 2, 3} {
		var sum Summary
		err := ringo.Local(context.Background(), np, ringo.Config{}, func(job *ringo.Job) error {
			cfg := Config{Batch: 60 / np, Epochs: 1, LR: 0.001, ClassWeights: balancedWeights, Seed: 3}
			s, err := Run(context.Background(), job, ownClassifier(), ownClasses(t, 60, 6), cfg)
			if job.Rank() == 0 {
				sum = s
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, sum.TrainLoss, sum.EvalLoss)
	}
	for i := 2; i < len(losses); i++ {
		if math.Abs(losses[i]-losses[i%2]) > 1e-5*losses[i%2] {
			t.Errorf("losses of training and evaluation with 1, 2 and 3 ranks: %v", losses)
		}
	}
}

// TestLossSettingsAreRefused for models without classes, other losses, heter-trainers and loops
// without training rows.
func TestLossSettingsAreRefused(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{custom(tinyClick()), "has no effect on model tiny-click, which has no classes"},
		{custom(tinyLSTM()), "has no effect on model tiny-lstm, which has no classes"},
		{Defaults(zoo("mlp"), houses(t, 60)), "which have no classes: leave it out"},
	} {
		for _, set := range []func(*Config){func(c *Config) { c.ClassWeights = balancedWeights }, func(c *Config) { c.LabelSmoothing = 0.1 }} {
			cfg := c.cfg
			set(&cfg)
			if err := runAlone(t, cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		}
	}
	other := tinyNorm()
	build := other.Build
	other.Build = func(ps *nn.Params, o model.Options) model.Model {
		m := build(ps, o)
		m.Loss = func(t *nn.Tape, b model.Batch, out model.Outputs) model.Loss { return model.CrossEntropy(t, b, out) }
		return m
	}
	cfg := custom(other)
	cfg.LabelSmoothing = 0.1
	if err := runAlone(t, cfg); err == nil || !strings.Contains(err.Error(), "training.label-smoothing 0.1 has no effect on a loss other than model.CrossEntropy") {
		t.Errorf("a loss of its own: %v", err)
	}
	heters := custom(tinyNorm())
	heters.ClassWeights, heters.Heter.Count = balancedWeights, 1
	if err := heters.Validate(); err == nil || !strings.Contains(err.Error(), "training.class-weights balanced with heter.count 1") {
		t.Errorf("heter-trainers: %v", err)
	}
	err := ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) error {
		cfg := Config{Batch: 4, LR: 0.1, Optimizer: "sgd", ClassWeights: balancedWeights, Exchange: custom(tinyNorm()).Exchange}
		_, err := NewLoop(context.Background(), job, tinyNorm(), cfg)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "only Run counts the training rows") {
		t.Errorf("a loop: %v", err)
	}
	if w, err := parseWeights("a=1,b=2.5"); err != nil || !slices.Equal(w, []classWeight{{"a", 1}, {"b", 2.5}}) {
		t.Errorf("%v, %v", w, err)
	}
}
