package distopt

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/bucket"
	"github.com/ringo-ml/ringo/collective"
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

// A run that was saved under a threshold goes on with its share when it changes back.
func TestSetupHasBothSpars(t *testing.T) {
	onRanks(t, 1, func(g *collective.Group) error {
		var setup Setup
		for _, restored := range []bool{false, true} {
			cfg := Config{Strategy: SparseTopK, Spars: 0.01}
			if restored {
				cfg.Spars = 0
			}
			w, err := newRig(g, padded(), cfg)
			if err != nil {
				return err
			}
			if restored {
				err = w.o.Restore(setup)
			} else {
				err = w.o.SetStrategy(SparseThreshold)
				setup = w.o.Setup()
			}
			if err != nil {
				return err
			}
			if err := w.o.SetStrategy(SparseTopK); err != nil || w.o.Spars() != 0.01 {
				return fmt.Errorf("restored %v: spars %v, %w", restored, w.o.Spars(), err)
			}
		}
		return nil
	})
}
