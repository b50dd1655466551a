package distopt

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/optim"
)

// Under every strategy that selects, on every rank, what is sent and what is kept
// are gradient and old residual, bit for bit, and padding stays zero; as many
// entries are sent as the strategy says, and all ranks have the same parameters.
// It holds invariant[nothing-is-lost].
func TestSentAndKept(t *testing.T) {
	for _, info := range selecting() {
		for _, size := range []int{1, 2, 3, 5} {
			cfg := Config{Strategy: info.Name, Spars: 0.07, LayerThresholds: info.HasEffect(pathLayerThresholds) && size == 2}
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
	if got := w.o.Times().Density; got != float64(count)/float64(valuesOf(w.layers)) {
		return fmt.Errorf("density %v of %d entries of %d", got, count, valuesOf(w.layers))
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
		out := []int{0}
		for _, l := range w.layers[k.First : k.Last+1] {
			out[0] += l.Len - l.Pad
		}
		return out
	}
	var out []int
	for _, l := range w.layers[k.First : k.Last+1] {
		out = append(out, l.Len-l.Pad)
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
				gave, kept, lost := w.gave(), w.residual(), w.lost()
				clearPads(w.layers, gave)
				for i, v := range own {
					want := float64(v+old[i]) + float64(lost[i])
					if got := float64(gave[i]) + float64(kept[i]); math.Abs(got-want) > 1e-6*(math.Abs(want)+math.Abs(float64(gave[i]))+math.Abs(float64(lost[i]))) {
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

// Over all ranks nothing is lost where sums are coded, neither among the ranks nor on
// servers: what was agreed on and what is kept are the gradients. A value that is far
// below the steps of the sum's code, on one rank alone, arrives.
func TestCodedSumsConserve(t *testing.T) {
	sign, err := compress.NewChain(compress.Sign{})
	if err != nil {
		t.Fatal(err)
	}
	const steps, small = 60, 0.005
	for name, cfg := range map[string]Config{"int8": {Strategy: Int8, BucketBytes: 4000}, "sign": {Chain: sign, BucketBytes: 4000}} {
		for _, size := range []int{2, 3} {
			layers := padded()
			var mu sync.Mutex
			in, kept := make([]float64, total(layers)), make([]float64, total(layers))
			out, tiny := make([][]float32, size), layers[2].Offset
			onRanks(t, size, func(g *collective.Group) error {
				w := &rig{layers: layers, params: make([]float32, total(layers)), grads: make([]float32, total(layers)), rank: g.Rank()}
				var err error
				if w.o, err = New(g, &optim.SGD{LR: 1}, layers, w.params, w.grads, nil, cfg); err != nil {
					return err
				}
				out[w.rank] = w.params
				for range steps {
					w.fill()
					if w.grads[tiny] = 0; w.rank == 0 {
						w.grads[tiny] = small
					}
					mu.Lock()
					for i, v := range w.grads {
						in[i] += float64(v)
					}
					mu.Unlock()
					w.ready()
					if err := w.o.Step(); err != nil {
						return err
					}
				}
				mu.Lock()
				defer mu.Unlock()
				for i, v := range w.residual() {
					kept[i] += float64(v)
				}
				return w.o.Close()
			})
			for i := range in { // the update has subtracted the means
				if got := -float64(size)*float64(out[0][i]) + kept[i]; math.Abs(got-in[i]) > 1e-3 {
					t.Fatalf("%s over %d: value %d: %v was agreed on or is kept, the gradients are %v", name, size, i, got, in[i])
				}
			}
			if got, want := -float64(size)*float64(out[0][tiny]), steps*small; name == "int8" && math.Abs(got-want) > want/2 {
				t.Errorf("over %d: of %v on one rank %v has arrived", size, want, got)
			}
			requireSameBits(t, out[0], out[size-1], size-1)
		}
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

// A tensor of more than 4 Mi values, one beside it, and a share of which a single
// entry is left.
func TestLargeTensor(t *testing.T) {
	const large = 4<<20 + 1
	layers := []bucket.Param{{Name: "large", Len: large + 15, Pad: 15}, {Name: "one", Offset: large + 15, Len: 16, Pad: 15}}
	for _, s := range []Strategy{TopK, DLGS} {
		onRanks(t, 2, func(g *collective.Group) error {
			w, err := newRig(g, layers, Config{Strategy: s, Spars: 1.0 / (8 << 20)})
			if err != nil {
				return err
			}
			for at := range 2 {
				clear(w.grads)
				w.grads[large-1-at], w.grads[large+15] = 3, float32(g.Rank())
				w.ready()
				if err := w.o.Step(); err != nil {
					return err
				}
				for b := range w.o.Plan() {
					if n := w.o.codec.sparse[b].Count(); n != 1 {
						return fmt.Errorf("%s: %d entries of bucket %d", s, n, b)
					}
				}
				if math.Abs(float64(w.params[large-1-at])+0.3) > 1e-6 {
					return fmt.Errorf("%s: parameter %d is %v", s, large-1-at, w.params[large-1-at])
				}
			}
			return nil
		})
	}
}
