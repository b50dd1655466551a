package train

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// stripes is a data set of one's own: two numbers, and whether their sum is above 1.
func stripes(t testing.TB, n int) *data.Dataset {
	t.Helper()
	all := make([][2]float32, n)
	for i := range all {
		all[i] = [2]float32{float32(i%17) / 17, float32(i%29) / 29}
	}
	shape := data.Shape{Values: []int{2}, Labels: 1}
	src, err := data.FromSlice(all, shape, func(x [2]float32, s data.Sample) error {
		copy(s.Values, x[:])
		if x[0]+x[1] > 1 {
			s.Labels[0] = 1
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	train, eval, err := data.Split(src, 0.25)
	if err != nil {
		t.Fatal(err)
	}
	return &data.Dataset{Name: "stripes", Train: train, Eval: eval, Classes: 2}
}

// mine is a model of one's own that leaves the shape of its samples to the data.
func mine() model.Spec {
	return model.Spec{Name: "mine", Build: func(ps *nn.Params, o model.Options) model.Model {
		hidden, out := ps.Dense("hidden", o.Input[0], 8), ps.Dense("out", 8, o.Classes)
		return model.Model{
			Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
				return model.Outputs{t.Dense(t.Dense(b.Values, hidden, nn.ReLU), out, nn.Identity)}
			},
			Loss: model.CrossEntropy, Metrics: []model.Metric{model.Accuracy()},
		}
	}}
}

// runMine runs a model of one's own on n ranks and returns rank 0's summary.
func runMine(t *testing.T, n int, cfg func(rank int) Config) (Summary, error) {
	t.Helper()
	var mu sync.Mutex
	var out Summary
	set := stripes(t, 400)
	err := ringo.Local(context.Background(), n, ringo.Config{}, func(job *ringo.Job) error {
		s, err := Run(job.Context(), job, mine(), set, cfg(job.Rank()))
		mu.Lock()
		defer mu.Unlock()
		if job.Rank() == 0 {
			out = s
		}
		return err
	})
	return out, err
}

// The zero configuration trains a model of one's own on data of one's own.
func TestRunNeedsNothing(t *testing.T) {
	for _, np := range []int{1, 2} {
		s, err := runMine(t, np, func(int) Config { return Config{LR: 0.5} })
		if err != nil || s.Eval["accuracy"] < 0.8 || s.Model != "mine" || s.Optimizer != "sgd" || len(s.Eval) != 1 {
			t.Errorf("np %d: %+v, %v", np, s, err)
		}
	}
	usual := Config{Model: zoo("gpt-mini")}.settled(2)
	if d := zoo("gpt-mini").Defaults; usual.Optimizer != d.Optimizer || usual.LR != d.LR || usual.Batch != d.Batch || usual.Exchange.ClipNorm != d.ClipNorm || usual.Threads < 1 {
		t.Errorf("%+v", usual)
	}
	if adam := (Config{Model: mine(), Optimizer: "adam"}).settled(1); adam.LR != 0.001 || adam.Validate() == nil {
		t.Errorf("adam's rate is %v; without data: %v", adam.LR, adam.Validate())
	}
}

// What is lacking or wrong is said before anything is trained.
func TestRunRefuses(t *testing.T) {
	set := stripes(t, 40)
	images := mine()
	images.Input = []int{28, 28, 1}
	for _, c := range []struct {
		m    model.Spec
		set  *data.Dataset
		cfg  Config
		want string
	}{
		{mine(), &data.Dataset{Train: set.Train}, Config{}, "data.Split"},
		{images, set, Config{Batch: 4}, "model mine takes [28 28 1]"},
		{model.Spec{Name: "none"}, set, Config{}, `"none" has no Build`},
		{mine(), set, Config{Batch: 4, Best: Best{Metric: "auc"}}, "training.monitor auc: the evaluation of mine has loss, accuracy"},
		{mine(), set, Config{Batch: 4, LogEvery: -1, Best: Best{Metric: "loss", Patience: -1}}, "output.log-every -1"},
		{mine(), set, Config{Batch: 4, Best: Best{Patience: 3}}, "training.monitor patience=3: want a metric"},
	} {
		err := ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) error {
			_, err := Run(job.Context(), job, c.m, c.set, c.cfg)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

// A callback of one rank ends all ranks after the same step or epoch; what was done is evaluated and saved.
func TestCallbacksStop(t *testing.T) {
	for _, c := range []struct {
		set   func(*Config)
		ended string
		steps int64
	}{
		{func(c *Config) { c.AfterStep = func(s Step) error { return stopIf(s.Done == 7) } }, "a callback ended it after step 3 of epoch 2", 7},
		{func(c *Config) { c.AfterEpoch = func(e Epoch) error { return stopIf(e.Epoch == 2) } }, "a callback ended it after epoch 2", 8},
		{func(c *Config) { c.AfterCheckpoint = func(step int64) error { return stopIf(step == 4) } }, "a callback ended it after epoch 2", 8},
	} {
		dir := t.TempDir()
		s, err := runMine(t, 2, func(rank int) Config {
			cfg := Config{LR: 0.5, Batch: 37, Epochs: 5, Checkpoint: Checkpoint{Dir: dir}}
			if c.set(&cfg); rank == 0 { // the others have it, too, and go on
				old := cfg.Callbacks
				cfg.Callbacks = Callbacks{}
				if old.AfterStep != nil {
					cfg.AfterStep = func(Step) error { return nil }
				}
				if old.AfterEpoch != nil {
					cfg.AfterEpoch = func(Epoch) error { return nil }
				}
				if old.AfterCheckpoint != nil {
					cfg.AfterCheckpoint = func(int64) error { return nil }
				}
			}
			return cfg
		})
		if err != nil || s.Ended != c.ended || s.Epochs != 2 {
			t.Errorf("%+v, %v; want it to end because %s", s, err, c.ended)
		}
		if steps, err := checkpoint.Steps(dir); err != nil || len(steps) == 0 || steps[0] != c.steps {
			t.Errorf("%s: checkpoints %v, %v, want the last of step %d", c.ended, steps, err, c.steps)
		}
	}
}

func stopIf(yes bool) error {
	if yes {
		return fmt.Errorf("enough: %w", ErrStop)
	}
	return nil
}

// Other errors of callbacks are the run's, and callbacks that only some ranks have are refused.
func TestCallbacksFail(t *testing.T) {
	broken := errors.New("broken")
	_, err := runMine(t, 2, func(rank int) Config {
		return Config{LR: 0.5, Batch: 30, Callbacks: Callbacks{AfterEpoch: func(Epoch) error { return broken }}}
	})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	_, err = runMine(t, 2, func(rank int) Config {
		cfg := Config{LR: 0.5, Batch: 30}
		if rank == 1 {
			cfg.AfterStep = func(Step) error { return nil }
		}
		return cfg
	})
	if err == nil || !strings.Contains(err.Error(), "callbacks AfterStep on rank 1 and none on rank 0") {
		t.Errorf("got %v", err)
	}
}

// A callback that fails on one rank alone ends all, and the run says whose it was.
func TestCallbackFailsOnOneRank(t *testing.T) {
	for n := 2; n <= 4; n++ {
		broken := errors.New("broken")
		_, err := runMine(t, n, func(rank int) Config {
			return Config{LR: 0.5, Batch: 10, Epochs: 3, Callbacks: Callbacks{AfterStep: func(s Step) error {
				if rank == 1 && s.Step == 2 {
					return broken
				}
				return nil
			}}}
		})
		if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "rank 1: ") {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}

// TestCallbackPanics names rank, callback, step or epoch, and the line, of a panic of a callback on one rank, for any number of ranks.
func TestCallbackPanics(t *testing.T) {
	var none []int
	fall := func() error { return fmt.Errorf("unreached %d", none[3]) }
	for want, set := range map[string]func(c *Callbacks){
		"in step 2 of epoch 1: callback AfterStep: panic: runtime error: index out of range [3] with length 0 (in ": func(c *Callbacks) {
			c.AfterStep = func(s Step) error {
				if s.Step == 2 {
					return fall()
				}
				return nil
			}
		},
		"callback AfterEpoch of epoch 1: panic: runtime error: index out of range": func(c *Callbacks) { c.AfterEpoch = func(Epoch) error { return fall() } },
	} {
		for _, n := range []int{1, 2, 4} {
			_, err := runMine(t, n, func(rank int) Config {
				cfg := Config{LR: 0.5, Batch: 10, Epochs: 2, Callbacks: Callbacks{AfterStep: func(Step) error { return nil }, AfterEpoch: func(Epoch) error { return nil }}}
				if rank == n-1 {
					set(&cfg.Callbacks)
				}
				return cfg
			})
			if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("rank %d: ", n-1)) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "library_test.go:") {
				t.Errorf("%d ranks: %v, want %q", n, err, want)
			}
		}
	}
}

// The end of the context ends the run, which says why.
func TestContextEndsTheRun(t *testing.T) {
	why := errors.New("no more time")
	set := stripes(t, 400)
	err := ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) error {
		ctx, cancel := context.WithCancelCause(job.Context())
		cfg := Config{LR: 0.5, Epochs: 1000, Callbacks: Callbacks{AfterEpoch: func(Epoch) error { cancel(why); return nil }}}
		_, err := Run(ctx, job, mine(), set, cfg)
		return err
	})
	if !errors.Is(err, why) || !strings.Contains(err.Error(), "epoch 2") {
		t.Errorf("got %v", err)
	}
}

// The best epoch's checkpoint remains; without progress the run ends, and does not begin again when it is resumed.
func TestBestAndPatience(t *testing.T) {
	dir := t.TempDir()
	rising := model.Metric{Name: "falls", Lower: true, EvalOnly: true, Sums: 1, Value: func(s []float64) (float64, bool) { return s[0], true }}
	epoch := 0.0
	rising.Add = func(sums []float64, _ model.Pass) { sums[0] = math.Abs(epoch - 2) } // the second evaluation is the best
	spec := mine()
	build := spec.Build
	spec.Build = func(ps *nn.Params, o model.Options) model.Model {
		m := build(ps, o)
		m.Metrics = append(m.Metrics, rising)
		return m
	}
	set := stripes(t, 200)
	once := func(resume bool) (s Summary) {
		err := ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) (err error) {
			cfg := Config{LR: 0.1, Batch: set.Train.Len(), Epochs: 20, Best: Best{Metric: "falls", Patience: 4}, Checkpoint: Checkpoint{Dir: dir, Keep: 2, Resume: resume}}
			cfg.AfterStep = func(s Step) error { epoch = float64(s.Epoch); return nil }
			s, err = Run(job.Context(), job, spec, set, cfg)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := once(false)
	if want := (BestEpoch{Metric: "falls", Value: 0, Epoch: 2, Step: 2}); first.Best == nil || *first.Best != want || first.Epochs != 6 || !strings.Contains(first.Ended, "no better falls") {
		t.Errorf("%+v, best %+v", first, first.Best)
	}
	if steps, err := checkpoint.Steps(dir); err != nil || !slices.Equal(steps, []int64{6, 5, 2}) {
		t.Errorf("checkpoints %v, %v", steps, err)
	}
	if again := once(true); again.Epochs != 6 || again.ParamsSHA256 != first.ParamsSHA256 || again.Ended != first.Ended {
		t.Errorf("resumed: %+v, before %+v", again, first)
	}
}

// Records of steps come as often as they are asked for.
func TestLogEvery(t *testing.T) {
	var steps stepRecorder
	if _, err := runMine(t, 2, func(rank int) Config {
		cfg := Config{LR: 0.5, Batch: 37, Epochs: 2, LogEvery: 2}
		if rank == 0 {
			cfg.Observer = &steps
		}
		return cfg
	}); err != nil {
		t.Fatal(err)
	}
	var at []string
	for _, s := range steps.steps {
		if !(s.Loss > 0) || s.LR != 0.5 || s.Event != "step" {
			t.Errorf("%+v", s)
		}
		at = append(at, fmt.Sprintf("%d.%d %d", s.Epoch, s.Step, s.Done))
	}
	if want := []string{"1.2 2", "1.4 4", "2.2 6", "2.4 8"}; !slices.Equal(at, want) {
		t.Errorf("steps %q, want %q", at, want)
	}
}

type stepRecorder struct {
	unobserved
	steps []Step
}

func (r *stepRecorder) Step(s Step) { r.steps = append(r.steps, s) }

// ownLoop trains mine by hand from step 0 or where a checkpoint is up to a step, with strategies that change, and returns its hash
// and the accuracy of the evaluation.
func ownLoop(t *testing.T, np int, dir string, until int64) (sum string, figures Evaluation) {
	t.Helper()
	set := stripes(t, 400)
	spec := mine()
	spec.Input, spec.Classes = []int{2}, 2
	var mu sync.Mutex
	err := ringo.Local(context.Background(), np, ringo.Config{}, func(job *ringo.Job) error {
		l, err := NewLoop(job.Context(), job, spec, Config{LR: 0.5, Momentum: 0.9, Optimizer: "sgd", Checkpoint: Checkpoint{Dir: dir, Resume: true}})
		if err != nil {
			return err
		}
		var b data.Batch
		idx := make([]int32, 10)
		for l.Steps() < until {
			step := int(l.Steps())
			for i := range idx {
				idx[i] = int32((step*np*10 + job.Rank()*10 + i) % set.Train.Len())
			}
			if err := set.Train.Fill(&b, idx, data.Draw{}); err != nil {
				return err
			}
			strategy, spars := distopt.FP32, 0.0
			if step >= 6 {
				strategy, spars = distopt.SparseTopK, 0.3
			}
			if _, err := l.TrainOneBatch(l.Replica().Batch(&b), strategy, spars); err != nil {
				return err
			}
		}
		e, err := l.Evaluate(set)
		if err != nil {
			return err
		}
		if err := l.Save(); err != nil {
			return err
		}
		hash, err := l.ParamsSHA256()
		mu.Lock()
		sum, figures = hash, e
		mu.Unlock()
		return errors.Join(err, l.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum, figures
}

// A loop of one's own that was saved and goes on has the bits of one that never stopped: parameters, momentum, residuals.
func TestOwnLoopGoesOn(t *testing.T) {
	for _, np := range []int{1, 2, 3} {
		dir := t.TempDir()
		want, whole := ownLoop(t, np, filepath.Join(dir, "whole"), 20)
		ownLoop(t, np, filepath.Join(dir, "cut"), 9)
		got, parts := ownLoop(t, np, filepath.Join(dir, "cut"), 20)
		if got != want || whole.Loss != parts.Loss || !maps.Equal(whole.Figures, parts.Figures) || whole.Terms != int64(stripes(t, 400).Eval.Len()) {
			t.Errorf("np %d: %s and %+v, want %s and %+v", np, got, parts, want, whole)
		}
	}
}

// A loop without a folder saves nothing, and one that is told a wrong strategy says so.
func TestOwnLoopRefuses(t *testing.T) {
	spec := mine()
	spec.Input, spec.Classes = []int{2}, 2
	err := ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) error {
		l, err := NewLoop(job.Context(), job, spec, Config{})
		if err != nil {
			return err
		}
		if err := l.Save(); err != nil {
			return err
		}
		if _, err := l.Evaluate(&data.Dataset{Eval: synthetic(t, 1, 20)}); err == nil || !strings.Contains(err.Error(), "but model mine takes [2]") {
			t.Errorf("images: %v", err)
		}
		if _, err := l.TrainOneBatch(spec.Sample(3), "fp17", 0); err == nil || !strings.Contains(err.Error(), "fp17") {
			t.Errorf("fp17: %v", err)
		}
		return l.Close()
	})
	if err != nil {
		t.Error(err)
	}
}

// Any rank may be told of each of its steps, alone: that makes ranks meet nowhere, and changes no bit.
func TestEachStep(t *testing.T) {
	var told []Step
	once := func(of int) string {
		told = nil
		sum, err := runMine(t, 2, func(rank int) Config {
			cfg := Config{LR: 0.5, Batch: 30, Epochs: 2}
			if rank == of {
				cfg.EachStep = func(s Step) { told = append(told, s) }
			}
			return cfg
		})
		if err != nil {
			t.Fatal(err)
		}
		return sum.ParamsSHA256
	}
	want := once(-1)
	for of := range 2 {
		if got := once(of); got != want {
			t.Errorf("told of rank %d: sha256 %s, want %s", of, got, want)
		}
		for i, s := range told {
			if s.Done != int64(i+1) || s.Event != "step" || !(s.Loss > 0) || !(s.StepMS > 0) {
				t.Errorf("step %d of rank %d: %+v", i+1, of, s)
			}
		}
		if len(told) == 0 || len(told)%2 != 0 || told[len(told)-1].Epoch != 2 {
			t.Errorf("rank %d was told of %d steps", of, len(told))
		}
	}
}
