package train

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/optim"
)

// signum is an optimizer of a program: steps of the sign of a running mean (Bernstein et al. 2018).
type signum struct {
	lr   float64
	name string
	mean []float32
}

func (s *signum) Name() string       { return s.name }
func (s *signum) SetLR(lr float64)   { s.lr = lr }
func (s *signum) CurrentLR() float64 { return s.lr }
func (s *signum) BeginStep()         {}

func (s *signum) Bind(n int) error {
	if s.mean == nil {
		s.mean = make([]float32, n)
	}
	return nil
}

func (s *signum) Update(lo int, params, grads []float32, scale float32) {
	for i, g := range grads {
		m := &s.mean[lo+i]
		*m = 0.9**m + 0.1*scale*g
		if *m > 0 {
			params[i] -= float32(s.lr)
		} else if *m < 0 {
			params[i] += float32(s.lr)
		}
	}
}

func (s *signum) State() []optim.State {
	if s.mean == nil {
		return nil
	}
	return []optim.State{{Name: "mean", Data: s.mean}}
}

// TestCustomOptimizerHasTheBitsOfItsName: a value of package optim trains as the same optimizer by
// name, at its own rate or the run's.
func TestCustomOptimizerHasTheBitsOfItsName(t *testing.T) {
	for _, np := range []int{1, 2, 3} {
		hash := func(cfg func() Config) string {
			t.Helper()
			s, err := runMine(t, np, func(int) Config { return cfg() })
			if err != nil {
				t.Fatal(err)
			}
			return s.ParamsSHA256
		}
		want := hash(func() Config { return Config{Batch: 10, Epochs: 3, Optimizer: "sgd", LR: 0.1, Momentum: 0.9} })
		own := hash(func() Config {
			return Config{Batch: 10, Epochs: 3, CustomOptimizer: &optim.SGD{LR: 0.1, Momentum: 0.9}}
		})
		rated := hash(func() Config {
			return Config{Batch: 10, Epochs: 3, LR: 0.1, CustomOptimizer: &optim.SGD{LR: 7, Momentum: 0.9}}
		})
		if own != want || rated != want {
			t.Errorf("np %d: %s by its own rate, %s by the run's, %s by name", np, own, rated, want)
		}
	}
}

// signumLoop trains mine by signum up to a step, from a checkpoint if there is one.
func signumLoop(t *testing.T, np int, dir string, until int64, name string) (sum string, err error) {
	t.Helper()
	set, spec := stripes(t, 400), mine()
	spec.Input, spec.Classes = []int{2}, 2
	var mu sync.Mutex
	err = ringo.Local(context.Background(), np, ringo.Config{}, func(job *ringo.Job) error {
		l, err := NewLoop(job.Context(), job, spec, Config{CustomOptimizer: &signum{lr: 0.01, name: name}, Checkpoint: Checkpoint{Dir: dir, Resume: true}})
		if err != nil {
			return err
		}
		var b data.Batch
		idx := make([]int32, 10)
		for l.Steps() < until {
			for i := range idx {
				idx[i] = int32((int(l.Steps())*np*10 + job.Rank()*10 + i) % set.Train.Len())
			}
			if err := set.Train.Fill(&b, idx, data.Draw{}); err != nil {
				return err
			}
			if _, err := l.TrainOneBatch(l.Replica().Batch(&b), distopt.FP32, 0); err != nil {
				return err
			}
		}
		e, err := l.Evaluate(set)
		if err == nil && until >= 60 && e.Figures["accuracy"] < 0.8 {
			t.Errorf("np %d: evaluation %+v: signum learns nothing", np, e)
		}
		hash, failed := l.ParamsSHA256()
		mu.Lock()
		sum = hash
		mu.Unlock()
		return errors.Join(err, failed, l.Save(), l.Close())
	})
	return sum, err
}

// TestCustomOptimizerResumes: a loop with a program's own optimizer that was saved ends with the
// bits of an uninterrupted one, and does not resume with another optimizer.
func TestCustomOptimizerResumes(t *testing.T) {
	for _, np := range []int{1, 2, 3} {
		dir := t.TempDir()
		want, err := signumLoop(t, np, filepath.Join(dir, "whole"), 60, "signum")
		_, cutErr := signumLoop(t, np, filepath.Join(dir, "cut"), 33, "signum")
		_, other := signumLoop(t, np, filepath.Join(dir, "cut"), 60, "another")
		got, resumed := signumLoop(t, np, filepath.Join(dir, "cut"), 60, "signum")
		if err := errors.Join(err, cutErr, resumed); err != nil || got != want {
			t.Errorf("np %d: %v, %s, want %s", np, err, got, want)
		}
		if other == nil || !strings.Contains(other.Error(), "training.optimizer another: the checkpoint has signum") {
			t.Errorf("np %d: another optimizer: %v", np, other)
		}
	}
}

// namedParts is signum with other names of its state.
type namedParts struct {
	signum
	names []string
}

func (n *namedParts) State() (out []optim.State) {
	for _, name := range n.names {
		out = append(out, optim.State{Name: name, Data: n.mean})
	}
	return out
}

// TestCustomOptimizerIsRefused: settings that contradict the optimizer, states without names, used
// optimizers and tables of rows are errors that name the remedy.
func TestCustomOptimizerIsRefused(t *testing.T) {
	used := &signum{lr: 1, name: "signum", mean: []float32{0, 1}}
	parts := func(names ...string) *namedParts { return &namedParts{signum{lr: 1, name: "parts"}, names} }
	fresh := func() *signum { return &signum{lr: 0.1, name: "signum"} }
	for want, cfg := range map[string]Config{
		`"adam" and Config.CustomOptimizer (signum): choose one`: {Optimizer: "adam", CustomOptimizer: fresh()},
		"momentum, weight decay and eps have no effect":          {Momentum: 0.9, CustomOptimizer: fresh()},
		"parameter servers update by their own rules":            {Servers: Servers{Consistency: "bsp"}, CustomOptimizer: fresh()},
		"heter-trainers update by their own optimizer":           {Heter: Heter{Count: 1}, CustomOptimizer: fresh()},
		"its Name is empty": {CustomOptimizer: &signum{lr: 1}},
		`optimizer signum has been used: its state "mean" is not zero: make a new optimizer`: {CustomOptimizer: used},
		`optimizer parts: a part of its State is named "", like another or not at all`:       {CustomOptimizer: parts("")},
		`optimizer parts: a part of its State is named "mean", like another or not at all`:   {CustomOptimizer: parts("mean", "mean")},
		"takes the place of the optimizer's own":                                             {CustomOptimizer: &optim.SGD{LR: 1}, Exchange: distopt.Config{Strategy: distopt.SparseTopK, Momentum: 0.9}},
		"training.lr -1: want a positive number":                                             {CustomOptimizer: &optim.SGD{LR: -1}},
	} {
		if _, err := runMine(t, 1, func(int) Config { return cfg }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	err := ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) error {
		cfg := Config{Model: zoo("wide-deep"), Batch: 4, Seed: 1, Threads: 1, LR: 0.1, CustomOptimizer: fresh()}
		r, err := NewReplica(job, cfg, model.Options{Rows: 50})
		if err == nil {
			r.Close()
		}
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "optimizer signum cannot update the rows of") {
		t.Errorf("a table: %v", err)
	}
	if _, err := RunSeeds(context.Background(), nil, mine(), nil, Config{CustomOptimizer: fresh()}, 2, nil); err == nil || !strings.Contains(err.Error(), "an optimizer is of one run") {
		t.Errorf("seeds: %v", err)
	}
}
