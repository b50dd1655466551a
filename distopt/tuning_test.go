package distopt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/optim"
)

// Prepare gives later strategies their settings; one that has them refuses.
func TestPrepare(t *testing.T) {
	onRanks(t, 2, func(g *collective.Group) error {
		w, err := newRig(g, padded(), Config{})
		if err != nil {
			return err
		}
		o := w.o
		err = errors.Join(o.Prepare(0.25, 3, compress.RulePaper), o.SetStrategy(DLGS))
		if chain, _ := o.cfg.NewChain(); err != nil || o.Spars() != 0.25 || chain.String() != "dlgs(0.25, every 3, paper) > fp32" {
			t.Errorf("after Prepare %v, %v; %v", o.Spars(), chain, err)
		}
		if err := o.Prepare(0.5, 0, ""); err == nil || !strings.Contains(err.Error(), "has its exchange.spars already") {
			t.Errorf("under dlgs: %v", err)
		}
		if err := errors.Join(o.SetStrategy(FP32)); err != nil {
			return err
		}
		if err := o.Prepare(7, -1, ""); err == nil || !strings.Contains(err.Error(), "spars 7") && !strings.Contains(err.Error(), "dlgs-every -1") {
			t.Errorf("bad settings: %v", err)
		}
		if o.Reducer() == nil {
			t.Error("no reducer")
		}
		return nil
	})
}

// After Reselect all buckets select exactly in the next step.
func TestReselect(t *testing.T) {
	onRanks(t, 2, func(g *collective.Group) error {
		w, err := newRig(g, padded(), Config{Strategy: DLGS, Spars: 0.1, Every: 100, BucketBytes: 400})
		if err != nil {
			return err
		}
		for turn := range 3 {
			if err := w.train(1); err != nil {
				return err
			}
			if anew := w.o.Times().ExactShare; anew != 1 {
				t.Errorf("turn %d: %v of the values were selected anew", turn, anew)
			}
			if err := w.train(1); err != nil {
				return err
			}
			if anew := w.o.Times().ExactShare; anew == 1 {
				t.Errorf("turn %d: the second step selects all anew", turn)
			}
			kept := w.residual()
			if err := w.o.Reselect(); err != nil {
				return err
			}
			if !slices.Equal(kept, w.residual()) {
				t.Errorf("turn %d: what is kept has changed", turn)
			}
		}
		w.fill()
		w.o.GradReady(0)
		if err := w.o.Reselect(); err == nil {
			t.Error("in the middle of a step")
		}
		return nil
	})
}

// Ranks with other strategies are told what both have, when they are made and when one
// is changed, and nobody waits.
func TestStrategiesDiffer(t *testing.T) {
	one := func(rank int, odd, other Config) Config {
		if rank == 1 {
			return odd
		}
		return other
	}
	dlgs, dense := Config{Strategy: DLGS, Spars: 0.25}, Config{}
	check := func(errs []error) {
		t.Helper()
		for rank, err := range errs {
			for _, want := range []string{"rank 1 has strategy dlgs (dlgs(0.25, every 16, corrected) > fp32)", "rank 0 fp32: all ranks must have the same"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("rank %d: %v, want %q", rank, err, want)
				}
			}
		}
	}
	check(ranks(t, 3, func(g *collective.Group) error {
		_, err := newRig(g, padded(), one(g.Rank(), dlgs, dense))
		return err
	}))
	check(ranks(t, 3, func(g *collective.Group) error {
		w, err := newRig(g, padded(), Config{Strategy: BF16})
		if err == nil {
			err = w.o.Prepare(0.25, 0, "")
		}
		if err != nil {
			return err
		}
		return w.o.SetStrategy(one(g.Rank(), dlgs, Config{Strategy: FP32}).Strategy)
	}))
	for rank, err := range ranks(t, 2, func(g *collective.Group) error {
		_, err := newRig(g, padded(), Config{Strategy: DLGS, Spars: 0.25, Rule: compress.Rules()[g.Rank()]})
		return err
	}) {
		if want := "rank 1 has strategy dlgs (dlgs(0.25, every 16, paper) > fp32), rank 0 dlgs (dlgs(0.25, every 16, corrected) > fp32)"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rank %d: %v, want %q", rank, err, want)
		}
	}
	plain := Config{Strategy: DLGS, Spars: 0.1}
	other := []Config{plain, plain, plain, plain, plain, {Strategy: PartialUpdate}, {Strategy: PartialUpdate, Partitions: 3}}
	other[0].Spars, other[1].ClipNorm, other[2].Accumulation, other[3].LimitSum, other[4].Rule = 0.2, 1, 2, true, compress.RulePaper
	seen := map[string]bool{}
	for _, c := range append(other, plain) {
		text := strategyBytes(c)
		if len(text) != agreedBytes || seen[string(text)] {
			t.Errorf("%q is of two", text)
		}
		seen[string(text)] = true
	}
	plain.Accumulation = 1
	if !seen[string(strategyBytes(plain))] {
		t.Error("one backward a step is another setting than none said")
	}
}

// A rule that makes parameters of sums of its own has no use for their mean.
func TestPartialUpdateOfSums(t *testing.T) {
	onRanks(t, 2, func(g *collective.Group) error {
		layers := padded()
		n := total(layers)
		with := func(s Strategy) (*Optimizer, error) {
			return New(g, optim.NewFTRL(0.1), layers, make([]float32, n), make([]float32, n), nil, Config{Strategy: s})
		}
		o, err := with(FP32)
		if err != nil {
			return err
		}
		defer func() { _ = o.Close() }()
		_, first := with(PartialUpdate)
		for _, err := range []error{first, o.SetStrategy(PartialUpdate), o.Restore(Setup{Strategy: PartialUpdate, Last: o.Setup().Last, SHA256: o.Setup().SHA256})} {
			if err == nil || !strings.Contains(err.Error(), `optimizer "ftrl" recomputes them`) {
				return fmt.Errorf("partialUpdate with ftrl: %v", err)
			}
		}
		return nil
	})
}

func TestDensity(t *testing.T) {
	chain, err := compress.NewChain(compress.TopK{Ratio: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cfg  Config
		want float64
	}{
		{Config{}, 0}, {Config{Strategy: FP16}, 0}, {Config{Strategy: DLGS, Spars: 0.1}, 0.1}, {Config{Strategy: TopK}, DefaultSpars},
		{Config{Strategy: SparseThreshold, Spars: 0.1}, 0}, {Config{Chain: chain}, 0}, {Config{Strategy: "x"}, 0},
	} {
		if got := c.cfg.Density(); got != c.want {
			t.Errorf("%+v: density %v, want %v", c.cfg, got, c.want)
		}
	}
}
