package distopt

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/bucket"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/optim"
)

// padded is a model whose parameters do not fill their places: of one element, of
// many, one above the size from which selections are estimated.
func padded() []bucket.Layer {
	var layers []bucket.Layer
	at := 0
	for i, n := range []int{1, 10, 300, 4500, 17, 64, 1} {
		room := (n + 15) / 16 * 16
		layers = append(layers, bucket.Layer{Name: fmt.Sprintf("p%d", i), Offset: at, Len: room, Pad: room - n})
		at += room
	}
	return layers
}

// clearPads makes padding zero, as a model's is.
func clearPads(layers []bucket.Layer, x []float32) {
	for _, l := range layers {
		clear(x[l.Offset+l.Len-l.Pad : l.Offset+l.Len])
	}
}

// rig is one rank's optimizer over a reducer that keeps what it was given.
type rig struct {
	o             *Optimizer
	r             *naive
	layers        []bucket.Layer
	params, grads []float32
	rank, step    int
}

func newRig(g *collective.Group, layers []bucket.Layer, cfg Config) (*rig, error) {
	n := total(layers)
	w := &rig{r: newNaive(g), layers: layers, params: make([]float32, n), grads: make([]float32, n), rank: g.Rank()}
	cfg.Reducer = w.r
	sgd := optim.SGD{LR: 0.1, Momentum: 0.9}
	var err error
	w.o, err = New(g, &sgd, layers, w.params, w.grads, nil, cfg)
	return w, err
}

// fill makes the gradient of the rig's step.
func (w *rig) fill() {
	gradient(w.grads, w.step, 0, w.rank)
	clearPads(w.layers, w.grads)
	w.step++
}

func (w *rig) ready() {
	for l := range w.layers {
		w.o.GradReady(l)
	}
}

func (w *rig) train(steps int) error {
	for range steps {
		w.fill()
		w.ready()
		if err := w.o.Step(); err != nil {
			return err
		}
	}
	return nil
}

// residual is what the codec keeps, zeros where there is none.
func (w *rig) residual() []float32 {
	out := make([]float32, len(w.grads))
	if c := w.o.codec.local; c != nil {
		copy(out, c.Residual(0, len(out)))
	}
	return out
}

// gave is what this rank contributed to the last step.
func (w *rig) gave() []float32 {
	out := make([]float32, len(w.grads))
	for _, b := range w.o.Plan() {
		copy(out[b.Lo:], w.r.gave[b.Lo])
	}
	return out
}

func selecting() (out []Info) {
	for _, i := range Infos() {
		if i.Selects() {
			out = append(out, i)
		}
	}
	return out
}

// Under every strategy that selects, on every rank, what is sent and what is kept
// are gradient and old residual, bit for bit, and padding stays zero; as many
// entries are sent as the strategy says, and all ranks have the same parameters.
func TestSentAndKept(t *testing.T) {
	for _, info := range selecting() {
		for _, size := range []int{1, 2, 3, 5} {
			cfg := Config{Strategy: info.Name, Spars: 0.07, LayerThresholds: info.HasEffect(SettingThresholds) && size == 2}
			if info.Name == SparseThreshold {
				cfg.Spars = 2
			}
			if info.Plan == "" {
				cfg.BucketBytes = 4000
			}
			params := make([][]float32, size)
			onRanks(t, size, func(g *collective.Group) error {
				w, err := newRig(g, padded(), cfg)
				if err != nil {
					return err
				}
				params[g.Rank()] = w.params
				for range 6 {
					old := w.residual()
					w.fill()
					own := slices.Clone(w.grads)
					w.ready()
					if err := w.o.Step(); err != nil {
						return err
					}
					if err := w.conserved(own, old); err != nil {
						return fmt.Errorf("%s, step %d: %w", info.Name, w.step, err)
					}
					if err := w.counted(info, cfg); err != nil {
						return fmt.Errorf("%s, step %d: %w", info.Name, w.step, err)
					}
				}
				return nil
			})
			for rank := range params {
				requireSameBits(t, params[0], params[rank], rank)
			}
		}
	}
}

// conserved compares what a step sent and keeps with a gradient and what was kept
// before.
func (w *rig) conserved(own, old []float32) error {
	gave, kept := w.gave(), w.residual()
	for i, g := range own {
		if want, got := g+old[i], gave[i]+kept[i]; math.Float32bits(got) != math.Float32bits(want) {
			return fmt.Errorf("value %d: sent %v and kept %v, want %v in all", i, gave[i], kept[i], want)
		}
	}
	pads := slices.Clone(kept)
	clearPads(w.layers, pads)
	if !slices.Equal(pads, kept) {
		return fmt.Errorf("padding is kept")
	}
	return nil
}

// counted compares how many entries were sent with what the strategy says.
func (w *rig) counted(info Info, cfg Config) error {
	count, kept := 0, w.residual()
	for b := range w.o.Plan() {
		count += w.o.codec.sparse[b].Count()
	}
	if got := w.o.Times().Density; got != float64(count)/float64(len(w.grads)) {
		return fmt.Errorf("density %v of %d entries of %d", got, count, len(w.grads))
	}
	low, high := 0, 0
	for _, k := range w.o.Plan() {
		for _, n := range w.parts(k, cfg) {
			want := compress.Entries(cfg.Spars, n)
			low, high = low+want, high+want
			if info.Name == DGC || info.Name == DLGS {
				low, high = low-want+(want+3)/4, high-want+min(n, 4*want)
			}
		}
	}
	if info.Name == SparseThreshold {
		for i, v := range kept {
			if math.Abs(float64(v)) >= cfg.Spars {
				return fmt.Errorf("value %d: %v is kept, above the threshold", i, v)
			}
		}
		return nil
	}
	if count < low || count > high {
		return fmt.Errorf("%d entries are sent, want %d to %d", count, low, high)
	}
	return nil
}

// parts are the numbers of values that are selected from together in a bucket.
func (w *rig) parts(k bucket.Bucket, cfg Config) []int {
	if !cfg.LayerThresholds {
		return []int{k.Len()}
	}
	var out []int
	for _, l := range w.layers[k.First : k.Last+1] {
		out = append(out, l.Len)
	}
	return out
}

// Codes that round conserve within their precision, and sign, which has no zero,
// leaves padding alone.
func TestCodesConserve(t *testing.T) {
	sign, err := compress.NewChain(compress.Sign{})
	if err != nil {
		t.Fatal(err)
	}
	signedTop, err := compress.NewChain(compress.TopK{Ratio: 0.2}, compress.Sign{})
	if err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]Config{"int8": {Strategy: Int8}, "sign": {Chain: sign}, "topk and sign": {Chain: signedTop}} {
		onRanks(t, 3, func(g *collective.Group) error {
			w, err := newRig(g, padded(), cfg)
			if err != nil {
				return err
			}
			for range 5 {
				old := w.residual()
				w.fill()
				own := slices.Clone(w.grads)
				w.ready()
				if err := w.o.Step(); err != nil {
					return err
				}
				gave, kept := w.gave(), w.residual()
				clearPads(w.layers, gave)
				for i, v := range own {
					want := float64(v + old[i])
					if got := float64(gave[i]) + float64(kept[i]); math.Abs(got-want) > 1e-6*(math.Abs(want)+math.Abs(float64(gave[i]))) {
						return fmt.Errorf("%s, value %d: sent %v and kept %v, want %v in all", name, i, gave[i], kept[i], want)
					}
				}
			}
			pads := slices.Clone(w.params)
			clearPads(w.layers, pads)
			if !slices.Equal(pads, w.params) {
				return fmt.Errorf("%s: padding has moved", name)
			}
			return nil
		})
	}
}

// A NaN, or a value that a code has no room for, is an error that names step,
// bucket and parameter.
func TestBadValues(t *testing.T) {
	for _, s := range []Strategy{Int8, TopK, LAGS, DLGS} {
		ranks(t, 1, func(g *collective.Group) error {
			w, err := newRig(g, padded(), Config{Strategy: s})
			if err != nil {
				t.Error(err)
				return nil
			}
			w.fill()
			w.grads[w.layers[3].Offset+5] = float32(math.NaN())
			w.ready()
			err = w.o.Step()
			for _, word := range []string{"step 0", "bucket ", `"p3"`, "NaN at element 5"} {
				if err == nil || !strings.Contains(err.Error(), word) {
					t.Errorf("%s: error %v does not contain %q", s, err, word)
				}
			}
			return nil
		})
	}
}

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
			gave, kept := w.gave(), w.residual()
			for i := range own {
				want, got := float64(own[i]+old[i]), float64(gave[i])+float64(kept[i])
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
		if err := errors2(w.train(2), again.train(2)); err != nil {
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

func errors2(a, b error) error {
	if a != nil {
		return a
	}
	return b
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
			sent += l.Density * float64(w.layers[i].Len)
			if l.Name != w.layers[i].Name || l.Density <= 0 || i == 3 && (l.Threshold <= 0 || l.ResidualNorm <= 0 || l.Density > 0.25) {
				return fmt.Errorf("layer %d: %+v", i, l)
			}
		}
		if d := w.o.Times().Density; math.Abs(sent/float64(len(w.grads))-d) > 1e-9 {
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
