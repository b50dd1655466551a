package compress

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// vector is a way to fill gradients and residuals.
type vector struct {
	name string
	fill func(r *rand.Rand, x []float32)
}

var inf = float32(math.Inf(1))

func each(f func(r *rand.Rand, i int) float32) func(*rand.Rand, []float32) {
	return func(r *rand.Rand, x []float32) {
		for i := range x {
			x[i] = f(r, i)
		}
	}
}

func sign(r *rand.Rand) float32 { return float32(r.IntN(2)*2 - 1) }

var vectors = []vector{
	{"normal", each(func(r *rand.Rand, _ int) float32 { return float32(r.NormFloat64()) })},
	{"heavy tails", each(func(r *rand.Rand, _ int) float32 { return sign(r) * float32(math.Exp(6*r.NormFloat64())) })},
	{"few levels", each(func(r *rand.Rand, _ int) float32 { return float32(r.IntN(7) - 3) })},
	{"all equal", each(func(*rand.Rand, int) float32 { return 0.25 })},
	{"equal magnitudes", each(func(r *rand.Rand, _ int) float32 { return sign(r) })},
	{"all zero", each(func(*rand.Rand, int) float32 { return 0 })},
	{"both zeros", each(func(r *rand.Rand, _ int) float32 { return sign(r) * 0 })},
	{"one value", each(func(_ *rand.Rand, i int) float32 {
		if i == 3 {
			return -1
		}
		return 0
	})},
	{"denormals", each(func(r *rand.Rand, _ int) float32 {
		return sign(r) * math.Float32frombits(r.Uint32N(5000))
	})},
	{"infinities", each(func(r *rand.Rand, _ int) float32 {
		if r.IntN(50) == 0 {
			return inf
		}
		return r.Float32()
	})},
	{"ascending", each(func(_ *rand.Rand, i int) float32 { return float32(i + 1) })},
	{"all large in front", each(func(r *rand.Rand, i int) float32 {
		if i < 100 {
			return 1000 + r.Float32()
		}
		return r.Float32() / 1000
	})},
	{"one exponent", each(func(r *rand.Rand, _ int) float32 { return math.Float32frombits(0x3f800000 + r.Uint32N(300)) })},
}

func zeros(n int) []float32 { return make([]float32, n) }

// entry is one of a naive selection.
type entry struct {
	index int
	value float32
}

// ranked are the places of x by falling magnitude, lower indices first: a full
// sort of keys whose upper half is the magnitude and whose lower is the place.
func ranked(x []float32) []uint64 {
	keys := make([]uint64, len(x))
	for i, v := range x {
		keys[i] = uint64(^math.Float32bits(float32(math.Abs(float64(v)))))<<32 | uint64(i)
	}
	slices.Sort(keys)
	return keys
}

// topNaive are the k largest magnitudes of x, by index, and the k-th.
func topNaive(x []float32, ranked []uint64, k int) (sent []entry, kth float32) {
	for _, key := range ranked[:k] {
		i := int(uint32(key))
		sent = append(sent, entry{i, x[i]})
	}
	kth = float32(math.Abs(float64(sent[k-1].value)))
	slices.SortFunc(sent, func(a, b entry) int { return a.index - b.index })
	return sent, kth
}

// reachNaive is what has at least a magnitude and is not zero.
func reachNaive(x []float32, least float32) (sent []entry) {
	for i, v := range x {
		if m := float32(math.Abs(float64(v))); m >= least && m > 0 {
			sent = append(sent, entry{i, v})
		}
	}
	return sent
}

func added(a, b []float32) []float32 {
	out := make([]float32, len(a))
	for i := range out {
		out[i] = a[i] + b[i]
	}
	return out
}

func same(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

// checkSent wants exactly these entries, at base, and residual to hold the rest of
// sum bit for bit.
func checkSent(t *testing.T, what string, s *Sparse, start, base int, want []entry, residual, sum []float32) {
	t.Helper()
	if len(s.Index)-start != len(want) || len(s.Index) != len(s.Value) {
		t.Fatalf("%s: %d entries sent, %d values, want %d", what, len(s.Index)-start, len(s.Value), len(want))
	}
	rest := slices.Clone(sum)
	for i, e := range want {
		if got := int(s.Index[start+i]) - base; got != e.index || !same(s.Value[start+i], e.value) {
			t.Fatalf("%s: entry %d is %v at %d, want %v at %d", what, i, s.Value[start+i], got, e.value, e.index)
		}
		rest[e.index] = 0
	}
	for i := range rest {
		if !same(rest[i], residual[i]) {
			t.Fatalf("%s: %v is kept at %d, want %v", what, residual[i], i, rest[i])
		}
	}
}

// checkConserved wants every value either sent or kept, bit for bit.
func checkConserved(t *testing.T, what string, s *Sparse, residual, sum []float32) {
	t.Helper()
	var sent []entry
	for i, at := range s.Index {
		sent = append(sent, entry{int(at), sum[at]})
		if i > 0 && at <= s.Index[i-1] {
			t.Fatalf("%s: index %d after %d", what, at, s.Index[i-1])
		}
	}
	checkSent(t, what, s, 0, 0, sent, residual, sum)
}

// threads is a Pool that runs every part at the same time.
type threads int

func (p threads) Threads() int { return int(p) }

func (p threads) Run(parts int, part func(i int)) {
	var wg sync.WaitGroup
	for i := range parts {
		wg.Go(func() { part(i) })
	}
	wg.Wait()
}

// eachWorkspace runs f at every level and with threads; in short tests, which
// the race detector runs, with two threads.
func eachWorkspace(t *testing.T, f func(t *testing.T, w *Workspace)) {
	levels, pools := simd.Levels(), []threads{2, 5}
	if testing.Short() {
		levels, pools = nil, pools[:1]
	}
	for _, k := range levels {
		t.Run(k.Name(), func(t *testing.T) { f(t, &Workspace{kernels: k}) })
	}
	for _, p := range pools {
		t.Run(fmt.Sprintf("%d threads", p), func(t *testing.T) { f(t, NewWorkspace(p)) })
	}
}

func pair(r *rand.Rand, v vector, n int) (residual, grad []float32) {
	residual, grad = zeros(n), zeros(n)
	v.fill(r, grad)
	if r.IntN(2) == 0 {
		for i := range residual {
			residual[i] = grad[r.IntN(n)]
		}
	}
	return residual, grad
}

func sizes() []int {
	return []int{1, 2, 3, 16, 17, 1000, smallSelection, smallSelection + 1, 10_007, 2*minSegment + 11}
}

func ratios() []float64 {
	if testing.Short() {
		return []float64{1e-9, 0.1}
	}
	return []float64{1e-9, 0.001, 0.1, 1}
}

func label(v vector, n int, ratio float64) string {
	return fmt.Sprintf("%s, %d at %v", v.name, n, ratio)
}
