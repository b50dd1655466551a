package distopt

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bucket"
)

// Saved and restored in mid-run every strategy goes on with the same bits.
func TestStateRestores(t *testing.T) {
	for _, s := range Strategies() {
		if s == PartialUpdate {
			continue // replicas differ: saving brings them together
		}
		var want [2][]float32
		saved := make([]map[string][]float32, 2)
		var params, velocity [2][]float32
		var setup Setup
		cfg := Config{Strategy: s}
		if info, _ := Lookup(s); info.Selects() {
			cfg.Momentum = 0.5
		}
		onRanks(t, 2, func(g *collective.Group) error {
			w, err := newRig(g, padded(), cfg)
			if err != nil {
				return err
			}
			if w.o.info.Plan == "" {
				if err := w.o.SetPlan("cut", bucket.Fixed(w.layers, 2000)); err != nil {
					return err
				}
			}
			if err := w.train(5); err != nil {
				return err
			}
			saved[g.Rank()] = map[string][]float32{}
			for _, st := range w.o.State() {
				saved[g.Rank()][st.Name] = slices.Clone(st.Data)
			}
			if g.Rank() == 0 {
				setup = w.o.Setup()
			}
			params[g.Rank()] = slices.Clone(w.params)
			velocity[g.Rank()] = slices.Clone(w.o.opt.State()[0].Data)
			err = w.train(4)
			want[g.Rank()] = w.params
			return err
		})
		onRanks(t, 2, func(g *collective.Group) error {
			w, err := newRig(g, padded(), cfg)
			if err == nil {
				err = w.o.Restore(setup)
			}
			if err != nil {
				return err
			}
			copy(w.params, params[g.Rank()])
			copy(w.o.opt.State()[0].Data, velocity[g.Rank()])
			if len(w.o.State()) != len(saved[g.Rank()]) {
				return fmt.Errorf("%s: %d states, %d were saved", s, len(w.o.State()), len(saved[g.Rank()]))
			}
			for _, st := range w.o.State() {
				copy(st.Data, saved[g.Rank()][st.Name])
			}
			w.step = 5
			if err := w.o.SetSteps(5); err != nil {
				return err
			}
			if err := w.train(4); err != nil {
				return err
			}
			if !slices.Equal(w.params, want[g.Rank()]) {
				return fmt.Errorf("%s: rank %d goes on otherwise", s, g.Rank())
			}
			return nil
		})
	}
}

// What is owed is restored, too.
func TestOwedIsRestored(t *testing.T) {
	onRanks(t, 1, func(g *collective.Group) error {
		w, err := newRig(g, padded(), Config{Strategy: TopK})
		if err != nil {
			return err
		}
		if err := w.train(2); err != nil {
			return err
		}
		if err := w.o.SetStrategy(FP32); err != nil {
			return err
		}
		setup := w.o.Setup()
		again, err := newRig(g, padded(), Config{})
		if err != nil {
			return err
		}
		if err := again.o.Restore(setup); err != nil {
			return err
		}
		if len(again.o.State()) != len(w.o.State()) || len(w.o.State()) != len(w.layers) {
			return fmt.Errorf("%d states are restored of %d", len(again.o.State()), len(w.o.State()))
		}
		for i, s := range w.o.State() {
			copy(again.o.State()[i].Data, s.Data)
		}
		copy(again.params, w.params)
		copy(again.o.opt.State()[0].Data, w.o.opt.State()[0].Data)
		again.step = w.step
		if err := errors.Join(w.train(2), again.train(2)); err != nil {
			return err
		}
		if !slices.Equal(w.params, again.params) || len(w.o.State())+len(again.o.State()) > 0 {
			return fmt.Errorf("the two differ, or something is still owed")
		}
		for _, bad := range []Setup{
			{Strategy: "fp33", Last: setup.Last, SHA256: setup.SHA256}, {Strategy: Custom, Last: setup.Last, SHA256: setup.SHA256},
			{Strategy: FP32, Last: []int{99}}, {Strategy: FP32, Last: []int{2}}, {Strategy: FP32, Last: setup.Last, SHA256: "x"},
		} {
			if err := again.o.Restore(bad); err == nil {
				return fmt.Errorf("%+v was restored", bad)
			}
		}
		return nil
	})
}

// A restored run has what the saved one had and no more, whatever it was made with.
func TestRestoreInventsNothing(t *testing.T) {
	onRanks(t, 1, func(g *collective.Group) error {
		w, err := newRig(g, padded(), Config{Strategy: TopK})
		if err != nil {
			return err
		}
		if err := errors.Join(w.train(2), w.o.SetStrategy(FP32), w.train(1)); err != nil {
			return err
		}
		again, err := newRig(g, padded(), Config{Strategy: TopK})
		if err != nil {
			return err
		}
		if err := errors.Join(again.train(2), again.o.Restore(w.o.Setup())); err != nil {
			return err
		}
		if n := len(again.o.State()); n != len(w.o.State()) || n != 0 {
			return fmt.Errorf("%d states are restored of %d", n, len(w.o.State()))
		}
		if err := again.o.Restore(Setup{Strategy: DLGS, Last: w.o.Setup().Last, SHA256: w.o.Setup().SHA256}); err != nil {
			return err
		}
		for _, v := range again.residual() {
			if v != 0 {
				return fmt.Errorf("%v is kept of a run before", v)
			}
		}
		return again.train(1)
	})
}

// A restored run has the share and the threshold of the saved one, under whatever
// strategy that was saved; a change that fails leaves both.
func TestSetupHasBothSpars(t *testing.T) {
	chain, err := compress.NewChain(compress.TopK{Ratio: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	own := func(o *Optimizer) error { return o.SetChain(chain) }
	to := func(s Strategy) func(o *Optimizer) error {
		return func(o *Optimizer) error { return o.SetStrategy(s) }
	}
	spars := func(v float64) func(o *Optimizer) error {
		return func(o *Optimizer) error { return o.SetSpars(v) }
	}
	none := func(o *Optimizer) error {
		if err := o.SetStrategy("fp33"); err == nil {
			return errors.New("fp33 is a strategy")
		}
		return nil
	}
	type change = func(o *Optimizer) error
	for i, c := range []struct {
		cfg     Config
		changes []change
		then    Strategy
		want    float64
	}{
		{Config{Strategy: SparseTopK, Spars: 0.01}, []change{to(SparseThreshold)}, SparseTopK, 0.01},
		{Config{Strategy: SparseThreshold, Spars: 0.01}, []change{to(FP32)}, TopK, DefaultSpars},
		{Config{Strategy: SparseThreshold, Spars: 2}, []change{to(FP32), none}, SparseThreshold, 2},
		{Config{Strategy: SparseThreshold, Spars: 2}, []change{own}, TopK, DefaultSpars},
		{Config{Strategy: SparseThreshold, Spars: 2}, []change{to(TopK), spars(0.5), own}, SparseThreshold, 2},
		{Config{Strategy: DLGS, Spars: 0.01}, []change{spars(0.2), to(FP32)}, DLGS, 0.2},
		{Config{Strategy: DLGS, Spars: 0.01}, []change{own}, LAGS, 0.01},
	} {
		onRanks(t, 1, func(g *collective.Group) error {
			w, err := newRig(g, padded(), c.cfg)
			if err != nil {
				return err
			}
			for _, change := range c.changes {
				if err := change(w.o); err != nil {
					return err
				}
			}
			again, err := newRig(g, padded(), c.cfg)
			if err == nil && w.o.Strategy() == Custom {
				err = again.o.SetChain(chain)
			}
			if err == nil {
				err = again.o.Restore(w.o.Setup())
			}
			if err != nil {
				return err
			}
			for _, o := range []*Optimizer{w.o, again.o} {
				if err := o.SetStrategy(c.then); err != nil || o.Spars() != c.want {
					return fmt.Errorf("case %d: spars %v, want %v, %w", i, o.Spars(), c.want, err)
				}
			}
			return nil
		})
	}
}
