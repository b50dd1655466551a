package distopt

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/optim"
)

// trained is every rank's parameters after some steps of a strategy.
func trained(t *testing.T, size int, cfg Config, obvious bool) [][]float32 {
	t.Helper()
	out := make([][]float32, size)
	onRanks(t, size, func(g *collective.Group) error {
		layers, own := padded(), cfg
		if obvious {
			own.Reducer = newNaive(g)
		}
		w := &rig{layers: layers, params: make([]float32, total(layers)), grads: make([]float32, total(layers)), rank: g.Rank()}
		sgd := optim.SGD{LR: 0.1, Momentum: 0.9}
		var err error
		if w.o, err = New(g, &sgd, layers, w.params, w.grads, nil, own); err != nil {
			return err
		}
		out[g.Rank()] = w.params
		if err := w.train(5); err != nil {
			return err
		}
		return w.o.Close()
	})
	return out
}

// With every strategy and number of ranks the exchange gives all ranks the same
// bits, and what the obvious one gives within the precision of the code.
func TestExchangeEqualsNaive(t *testing.T) {
	for _, s := range Strategies() {
		for _, size := range []int{1, 2, 3, 5} {
			cfg := Config{Strategy: s, Spars: 0, Plan: ""}
			info, _ := Lookup(s)
			if info.Plan == "" {
				cfg.BucketBytes = 4000
			}
			if s == PartialUpdate {
				cfg.Partitions = 3
			}
			want, got := trained(t, size, cfg, true), trained(t, size, cfg, false)
			tolerance := 1e-6
			switch s {
			case FP16:
				tolerance = 2e-3
			case BF16:
				tolerance = 2e-2
			}
			for rank := range got {
				if s != PartialUpdate {
					requireSameBits(t, got[0], got[rank], rank)
				}
				for i, v := range got[rank] {
					if math.Abs(float64(v-want[rank][i])) > tolerance {
						t.Fatalf("%s, %d ranks, rank %d: parameter %d is %v, want %v", s, size, rank, i, v, want[rank][i])
					}
				}
			}
		}
	}
}

// The algorithms of sparse exchanges that can be asked for give the same result.
func TestSparseAlgorithms(t *testing.T) {
	want := trained(t, 3, Config{Strategy: DLGS}, true)
	for _, name := range exchange.Algorithms() {
		got := trained(t, 3, Config{Strategy: DLGS, SparseAlgorithm: name}, false)
		for rank := range got {
			requireSameBits(t, got[0], got[rank], rank)
			for i, v := range got[rank] {
				if math.Abs(float64(v-want[rank][i])) > 1e-6 {
					t.Fatalf("%s: parameter %d is %v, want %v", name, i, v, want[rank][i])
				}
			}
		}
	}
}

// A sum that a code has no room for names step, bucket and parameter.
func TestNoRoom(t *testing.T) {
	for _, s := range []Strategy{FP16, BF16} {
		bad := float32(3e38)
		if s == BF16 { // which has room for that
			bad = float32(math.Inf(1))
		}
		errs := ranks(t, 2, func(g *collective.Group) error {
			layers := padded()
			w := &rig{layers: layers, params: make([]float32, total(layers)), grads: make([]float32, total(layers))}
			sgd := optim.SGD{LR: 0.1}
			var err error
			if w.o, err = New(g, &sgd, layers, w.params, w.grads, nil, Config{Strategy: s, BucketBytes: 4000}); err != nil {
				return err
			}
			w.grads[layers[3].Offset+7] = bad
			w.ready()
			return w.o.Step()
		})
		for rank, err := range errs {
			for _, word := range []string{"step 0", "bucket ", `"p3"`, string(s)} {
				if err == nil || !strings.Contains(err.Error(), word) {
					t.Errorf("%s, rank %d: error %v does not contain %q", s, rank, err, word)
				}
			}
		}
	}
}

// Clipping bounds what is cast, so that there is room.
func TestClipValue(t *testing.T) {
	onRanks(t, 2, func(g *collective.Group) error {
		layers := padded()
		w := &rig{layers: layers, params: make([]float32, total(layers)), grads: make([]float32, total(layers))}
		sgd := optim.SGD{LR: 1}
		var err error
		if w.o, err = New(g, &sgd, layers, w.params, w.grads, nil, Config{Strategy: FP16, ClipValue: 2, Accumulation: 2}); err != nil {
			return err
		}
		w.grads[0], w.grads[layers[3].Offset] = 1e30, -3
		w.ready()
		if err := w.o.Step(); err != nil {
			return err
		}
		// sums of two backwards: 2 is the limit of their mean
		if w.params[0] != -2 || w.params[layers[3].Offset] != 1.5 {
			return fmt.Errorf("parameters %v and %v, want -2 and 1.5", w.params[0], w.params[layers[3].Offset])
		}
		return w.o.Close()
	})
}

// Once buffers have grown a step of a strategy makes no garbage.
func TestCompressedStepAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	const reused = 1000 // no step but the first is exact
	for _, cfg := range []Config{
		{Strategy: FP16}, {Strategy: Int8}, {Strategy: TopK}, {Strategy: LAGS}, {Strategy: DGC}, {Strategy: DLGS},
		{Strategy: DLGS, Every: reused}, {Strategy: DLGS, Every: reused, Rule: compress.RulePaper},
	} {
		const steps = 30
		onRanks(t, 2, func(g *collective.Group) error {
			layers := padded()
			w := &rig{layers: layers, params: make([]float32, total(layers)), grads: make([]float32, total(layers)), rank: g.Rank()}
			sgd := optim.SGD{LR: 0.1}
			var err error
			if w.o, err = New(g, &sgd, layers, w.params, w.grads, nil, cfg); err != nil {
				return err
			}
			gradient(w.grads, 0, 0, w.rank)
			clearPads(layers, w.grads)
			own := slices.Clone(w.grads)
			step := func() {
				copy(w.grads, own)
				w.ready()
				if err := w.o.Step(); err != nil {
					t.Error(err)
				}
			}
			for range 60 {
				step()
			}
			if g.Rank() == 1 {
				for range steps + 1 {
					step()
				}
				return w.o.Close()
			}
			if per := testing.AllocsPerRun(steps, step); per >= 1 {
				t.Errorf("%s: %v allocations per step", w.o.Codec(), per)
			}
			return w.o.Close()
		})
	}
}

// When a later bucket fails, a bounded sum that was met by then loses nothing either: what
// was summed and what was left out are kept.
func TestFailedStepKeepsBound(t *testing.T) {
	errs := ranks(t, 2, func(g *collective.Group) error {
		defer g.Close()
		layers := []bucket.Param{{Name: "a", Len: 1600}, {Name: "b", Offset: 1600, Len: 1600}}
		params, grads := make([]float32, 3200), make([]float32, 3200)
		o, err := New(g, &optim.SGD{LR: 0.1}, layers, params, grads, nil, Config{Strategy: SparseTopK, Spars: 0.1, Plan: PlanPerLayer, LimitSum: true, SparseAlgorithm: exchange.Split})
		if err != nil {
			return err
		}
		gradient(grads, 0, 0, g.Rank())
		own := slices.Clone(grads)
		if g.Rank() == 1 {
			grads[2000] = float32(math.NaN())
		}
		o.GradReady(0)
		o.GradReady(1)
		failed := o.Step()
		if failed == nil || g.Rank() == 0 { // where the first bucket was agreed on
			return errors.Join(failed, o.Close())
		}
		if o.requests[0].Sent.Excluded == 0 {
			return errors.New("the sum left nothing out: the test shows nothing")
		}
		for i, v := range o.codec.local.Residual(0, 1600) {
			if v != own[i] {
				return fmt.Errorf("%v is kept at %d, want %v", v, i, own[i])
			}
		}
		return errors.Join(failed, o.Close())
	})
	for rank, err := range errs {
		var at *Error
		if !errors.As(err, &at) || !strings.Contains(err.Error(), `the gradient of parameter "b" is NaN`) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// A bounded sum has no more entries than a rank sends, and what it leaves out stays
// kept: over all ranks nothing is lost.
func TestBoundSum(t *testing.T) {
	const size, steps = 3, 4
	layers := padded()
	var mu sync.Mutex
	in, kept := make([]float64, total(layers)), make([]float64, total(layers))
	out := make([][]float32, size)
	left := 0
	onRanks(t, size, func(g *collective.Group) error {
		w := &rig{layers: layers, params: make([]float32, total(layers)), grads: make([]float32, total(layers)), rank: g.Rank()}
		sgd := optim.SGD{LR: 1}
		var err error
		cfg := Config{Strategy: SparseTopK, Spars: 0.1, BucketBytes: 4000, LayerThresholds: true, LimitSum: true, SparseAlgorithm: exchange.Split}
		if w.o, err = New(g, &sgd, layers, w.params, w.grads, nil, cfg); err != nil {
			return err
		}
		out[w.rank] = w.params
		for range steps {
			w.fill()
			mu.Lock()
			for i, v := range w.grads {
				in[i] += float64(v)
			}
			mu.Unlock()
			w.ready()
			if err := w.o.Step(); err != nil {
				return err
			}
			for b, k := range w.o.Plan() {
				entries, most := 0, 0
				for _, v := range w.grads[k.Lo:k.Hi] {
					if v != 0 {
						entries++
					}
				}
				for _, n := range w.parts(k, cfg) {
					most += compress.Entries(cfg.Spars, n)
				}
				if entries > most {
					return fmt.Errorf("bucket %d: a sum of %d entries, want at most %d", b, entries, most)
				}
				mu.Lock()
				left += w.o.requests[b].Sent.Excluded
				mu.Unlock()
			}
			if d, all := w.o.Layers(nil)[3].Density, 0.2; d <= 0 || d > all {
				return fmt.Errorf("a density of %v", d)
			}
		}
		mu.Lock()
		for i, v := range w.residual() {
			kept[i] += float64(v)
		}
		mu.Unlock()
		return w.o.Close()
	})
	if left == 0 {
		t.Error("no sum left anything out: the test shows nothing")
	}
	for i := range in { // the update has subtracted the means
		if got := -size*float64(out[0][i]) + kept[i]; math.Abs(got-in[i]) > 1e-4 {
			t.Fatalf("value %d: %v was agreed on or is kept, the gradients are %v", i, got, in[i])
		}
	}
	requireSameBits(t, out[0], out[size-1], size-1)
}
