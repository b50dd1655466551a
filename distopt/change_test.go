package distopt

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bucket"
)

// What was kept goes with the next gradients of a strategy that keeps nothing,
// and stays kept under one that does; after that nothing is left to do.
func TestResidualsSurviveChanges(t *testing.T) {
	for _, to := range Strategies() {
		onRanks(t, 2, func(g *collective.Group) error {
			w, err := newRig(g, padded(), Config{Strategy: TopK, Spars: 0.05})
			if err != nil {
				return err
			}
			if err := w.train(3); err != nil {
				return err
			}
			old := w.residual()
			if err := w.o.SetStrategy(to); err != nil {
				return err
			}
			w.fill()
			own := slices.Clone(w.grads)
			w.ready()
			if to == PartialUpdate {
				for i := range own {
					if w.grads[i] != own[i]+old[i] {
						return fmt.Errorf("to %s: the gradient is %v, want %v and what was kept, %v", to, w.grads[i], own[i], old[i])
					}
				}
				return w.o.Step()
			}
			if err := w.o.Step(); err != nil {
				return err
			}
			gave, kept, lost := w.gave(), w.residual(), w.lost()
			for i := range own {
				want, got := float64(own[i]+old[i])+float64(lost[i]), float64(gave[i])+float64(kept[i])
				if exact := to != Int8; exact && got != want || math.Abs(got-want) > 1e-5 {
					return fmt.Errorf("to %s: value %d: sent %v and kept %v, want %v in all", to, i, gave[i], kept[i], want)
				}
			}
			if info, _ := Lookup(to); !info.Selects() && to != Int8 && w.o.codec.local != nil {
				return fmt.Errorf("to %s: something is left to do after the step", to)
			}
			return w.train(2)
		})
	}
}

// A ratio that changes takes effect at once, and the same one changes nothing.
func TestSetSpars(t *testing.T) {
	onRanks(t, 2, func(g *collective.Group) error {
		w, err := newRig(g, padded(), Config{Strategy: DLGS, Spars: 0.25})
		if err != nil {
			return err
		}
		exact := func() bool { return w.o.codec.exact(0) }
		if err := w.train(2); err != nil || exact() {
			return fmt.Errorf("the second step was exact, or %v", err)
		}
		if err := w.o.SetSpars(0.25); err != nil {
			return err
		}
		if err := w.train(1); err != nil || exact() {
			return fmt.Errorf("after the same ratio the step was exact, or %v", err)
		}
		if err := w.o.SetSpars(0.01); err != nil {
			return err
		}
		if err := w.train(1); err != nil || !exact() || w.o.Times().Density > 0.013 {
			return fmt.Errorf("after another ratio: exact %v, density %v, %v", exact(), w.o.Times().Density, err)
		}
		if err := w.o.SetSpars(2); err == nil || !strings.Contains(err.Error(), "spars 2: want") {
			return fmt.Errorf("spars 2: %v", err)
		}
		if err := w.o.SetStrategy(SparseThreshold); err != nil || w.o.Spars() != DefaultSpars {
			return fmt.Errorf("a ratio is not a threshold: %v, %v", w.o.Spars(), err)
		}
		if err := w.o.SetStrategy(FP32); err != nil {
			return err
		}
		if err := w.o.SetSpars(0.5); err == nil || !strings.Contains(err.Error(), "spars 0.5 has no effect on strategy fp32") {
			return fmt.Errorf("spars of fp32: %v", err)
		}
		if err := w.o.SetStrategy(LAGS); err != nil || w.o.Spars() != 0.01 {
			return fmt.Errorf("the ratio was not kept: %v, %v", w.o.Spars(), err)
		}
		return nil
	})
}

// Rank 0's plan replaces all ranks', between steps: the next selections are
// exact, what was kept stays.
func TestSetPlan(t *testing.T) {
	onRanks(t, 3, func(g *collective.Group) error {
		w, err := newRig(g, padded(), Config{Strategy: DLGS, Spars: 0.1, Plan: PlanOne})
		if err != nil {
			return err
		}
		if err := w.train(2); err != nil {
			return err
		}
		old := w.residual()
		var mine bucket.Plan
		if g.Rank() == 0 {
			mine = bucket.Fixed(w.layers, 4000)
		}
		if err := w.o.SetPlan("mine", mine); err != nil {
			return err
		}
		want := bucket.Fixed(w.layers, 4000)
		if !slices.Equal(w.o.Plan(), want) || w.o.PlanName() != "mine" || w.o.Setup().SHA256 != want.SHA256() {
			return fmt.Errorf("plan %q: %v, want %v", w.o.PlanName(), w.o.Plan(), want)
		}
		w.fill()
		own := slices.Clone(w.grads)
		w.o.GradReady(0)
		if err := w.o.SetPlan("late", want); err == nil || !strings.Contains(err.Error(), "has begun") {
			return fmt.Errorf("a plan in a step: %v", err)
		}
		for l := 1; l < len(w.layers); l++ {
			w.o.GradReady(l)
		}
		if err := w.o.Step(); err != nil {
			return err
		}
		for b := range want {
			if !w.o.codec.exact(b) {
				return fmt.Errorf("bucket %d was not selected exactly after a change of plan", b)
			}
		}
		if err := w.conserved(own, old); err != nil {
			return err
		}
		if err := w.o.SetPlan("same", want); err != nil {
			return err
		}
		if err := w.train(1); err != nil || w.o.codec.exact(0) {
			return fmt.Errorf("the same plan again made the step exact, or %v", err)
		}
		if err := w.o.SetStrategy(TopK); err != nil {
			return err
		}
		if len(w.o.Plan()) != 1 || w.o.PlanName() != PlanOne {
			return fmt.Errorf("topk has plan %q of %d buckets", w.o.PlanName(), len(w.o.Plan()))
		}
		if err := w.o.SetPlan("mine", want); err == nil || !strings.Contains(err.Error(), "topk") {
			return fmt.Errorf("a plan for topk: %v", err)
		}
		if err := w.o.SetStrategy(DGC); err != nil || !slices.Equal(w.o.Plan(), want) {
			return fmt.Errorf("the plan is not back: %v, %v", w.o.Plan(), err)
		}
		return w.train(1)
	})
	ranks(t, 1, func(g *collective.Group) error {
		w, err := newRig(g, padded(), Config{})
		if err != nil {
			t.Error(err)
		} else if err := w.o.SetPlan("half", bucket.One(w.layers[:3])); err == nil || !strings.Contains(err.Error(), "half") {
			t.Errorf("a plan of three layers: %v", err)
		}
		return nil
	})
}

// A user's own chain and reducer are used, and figures by layer are those of the
// step.
func TestCustomChain(t *testing.T) {
	chain, err := compress.NewChain(compress.Clip{Max: 1}, compress.GaussianK{Ratio: 0.05}, compress.BF16{})
	if err != nil {
		t.Fatal(err)
	}
	onRanks(t, 2, func(g *collective.Group) error {
		w, err := newRig(g, padded(), Config{Chain: chain, Plan: PlanPerLayer})
		if err != nil {
			return err
		}
		if err := w.train(3); err != nil {
			return err
		}
		if w.o.Strategy() != Custom || w.o.Codec() != chain.String() {
			return fmt.Errorf("strategy %s, codec %s", w.o.Strategy(), w.o.Codec())
		}
		layers := w.o.Layers(nil)
		sent := 0.0
		for i, l := range layers {
			sent += l.Density * float64(w.layers[i].Len-w.layers[i].Pad)
			if l.Name != w.layers[i].Name || l.Density <= 0 || i == 3 && (l.Threshold <= 0 || l.ResidualNorm <= 0 || l.Density > 0.25) {
				return fmt.Errorf("layer %d: %+v", i, l)
			}
		}
		if d := w.o.Times().Density; math.Abs(sent/float64(valuesOf(w.layers))-d) > 1e-9 {
			return fmt.Errorf("layers sent %v entries, density %v", sent, d)
		}
		if err := w.o.SetStrategy(FP32); err != nil {
			return err
		}
		if err := w.train(2); err != nil {
			return err
		}
		for _, l := range w.o.Layers(nil) {
			if l.Density != 1 || l.Threshold != 0 || l.ResidualNorm != 0 {
				return fmt.Errorf("fp32: %+v", l)
			}
		}
		if err := w.o.SetChain(chain); err != nil {
			return err
		}
		return w.train(1)
	})
}
