package compress

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestEntries(t *testing.T) {
	for _, c := range []struct {
		ratio float64
		n, k  int
	}{{0.01, 1, 1}, {0.01, 100, 1}, {0.01, 101, 2}, {0.1, 1000, 100}, {1, 7, 7}, {1e-12, 1 << 22, 1}} {
		if got := Entries(c.ratio, c.n); got != c.k {
			t.Errorf("%v of %d: %d, want %d", c.ratio, c.n, got, c.k)
		}
	}
}

// The first pass of a new workspace may be one by several threads.
func TestFirstPassOnThreads(t *testing.T) {
	const n = 4 * minSegment
	var s Sparse
	s.Reset(n)
	residual := zeros(n)
	residual[1], residual[n-1] = 2, -3
	if count := NewWorkspace(threads(4)).Reaching(&s, 0, residual, nil, 1, n); count != 2 || !slices.Equal(s.Index, []int32{1, n - 1}) {
		t.Errorf("%d: %v", count, s.Index)
	}
}

// Settings are part of a name, by which ranks compare their chains.
func TestSampledName(t *testing.T) {
	for want, c := range map[string]Sampled{"sampled(0.1)": {Ratio: 0.1}, "sampled(0.2)": {Ratio: 0.2, Share: sampledShare}, "sampled(0.1, of 0.5)": {Ratio: 0.1, Share: 0.5}} {
		if got := c.Name(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Exact equals a full sort.
func TestExact(t *testing.T) {
	eachWorkspace(t, func(t *testing.T, w *Workspace) {
		r := rand.New(rand.NewPCG(1, 2))
		for _, n := range sizes() {
			for _, v := range vectors {
				checkExact(t, w, r, v, n)
			}
		}
	})
}

func checkExact(t *testing.T, w *Workspace, r *rand.Rand, v vector, n int) {
	var s Sparse
	residual, grad := pair(r, v, n)
	sum := added(residual, grad)
	order := ranked(sum)
	for i, ratio := range ratios() {
		k, base, start := Entries(ratio, n), r.IntN(1000), i%2
		want, kth := topNaive(sum, order, k)
		x, what := slices.Clone(residual), label(v, n, ratio)
		s.Reset(base + n)
		if start == 1 { // what is there stays
			s.Append(0, 77)
		}
		got := w.Exact(&s, base, x, grad, k)
		checkSent(t, what, &s, start, base, want, x, sum)
		if got != kth || start == 1 && s.Value[0] != 77 {
			t.Fatalf("%s: the threshold is %v, want %v", what, got, kth)
		}
		copy(x, sum)
		s.Reset(n)
		w.Exact(&s, 0, x, nil, k)
		checkSent(t, what+", added before", &s, 0, 0, want, x, sum)
	}
}

// The way without a lucky sample: counts of the upper bits, then of the rest.
func TestExactByCounting(t *testing.T) {
	eachWorkspace(t, func(t *testing.T, w *Workspace) {
		r := rand.New(rand.NewPCG(3, 4))
		var s Sparse
		for _, n := range []int{1, 2, 17, 1000, 3*takeChunk + 5} {
			for _, v := range vectors {
				sum := zeros(n)
				v.fill(r, sum)
				order := ranked(sum)
				for _, ratio := range ratios() {
					x, k := slices.Clone(sum), Entries(ratio, n)
					s.Reset(n)
					kth, equal := w.count(x, k)
					w.exactly(&s, x, 0, kth, equal)
					want, _ := topNaive(sum, order, k)
					checkSent(t, label(v, n, ratio), &s, 0, 0, want, x, sum)
				}
			}
		}
	})
}

// More values than fit any sample's luck, and a k of one.
func TestExactOfManyValues(t *testing.T) {
	const n = 4<<20 + 13
	r := rand.New(rand.NewPCG(5, 6))
	for _, v := range []vector{vectors[0], vectors[3]} {
		residual, grad := pair(r, v, n)
		sum := added(residual, grad)
		order := ranked(sum)
		for _, k := range []int{1, n / 100} {
			want, _ := topNaive(sum, order, k)
			x, s := slices.Clone(residual), Sparse{Len: n}
			var w Workspace
			w.Exact(&s, 0, x, grad, k)
			checkSent(t, fmt.Sprintf("%s, k = %d", v.name, k), &s, 0, 0, want, x, sum)
		}
	}
}

func TestThreshold(t *testing.T) {
	eachWorkspace(t, func(t *testing.T, w *Workspace) {
		r := rand.New(rand.NewPCG(7, 8))
		var s Sparse
		for _, n := range sizes() {
			for _, v := range vectors {
				for _, least := range []float64{0, 1e-40, 0.25, 1, 1e30} {
					if testing.Short() && n > minSegment && least != 0.25 {
						continue
					}
					residual, grad := pair(r, v, n)
					sum := added(residual, grad)
					s.Reset(n)
					sel := Threshold{Least: least}.Bind(n)
					sel.Select(w, &s, 0, residual, grad)
					checkSent(t, label(v, n, least), &s, 0, 0, reachNaive(sum, float32(least)), residual, sum)
				}
			}
		}
	})
}

// Written back, the state of a selection continues with the same bits.
func TestSelectionsContinue(t *testing.T) {
	const n = 20_000
	for _, c := range []Selector{DLGS{Ratio: 0.01, Every: 5}, Sampled{Ratio: 0.01}, TopK{Ratio: 0.01}, GaussianK{Ratio: 0.01}} {
		r := rand.New(rand.NewPCG(11, 12))
		w := NewWorkspace(nil)
		a, ra := c.Bind(n), zeros(n)
		var b Selection
		var rb []float32
		for step := range 9 {
			if step == 3 {
				b, rb = c.Bind(n), slices.Clone(ra)
				for i, s := range a.State() {
					copy(b.State()[i].Data, s.Data)
				}
			}
			grad := zeros(n)
			vectors[0].fill(r, grad)
			sa, sb := Sparse{Len: n}, Sparse{Len: n}
			a.Select(w, &sa, 0, ra, grad)
			if b != nil {
				b.Select(w, &sb, 0, rb, grad)
				if !slices.Equal(sa.Index, sb.Index) || !slices.Equal(ra, rb) {
					t.Errorf("%s: step %d differs", c.Name(), step)
				}
			}
		}
	}
}

// Estimates: whatever they are, nothing is lost, and the count is near the one
// that was asked for.
func TestEstimates(t *testing.T) {
	eachWorkspace(t, func(t *testing.T, w *Workspace) {
		r := rand.New(rand.NewPCG(13, 14))
		var s Sparse
		for _, n := range []int{1, 40, 5000, 30_000} {
			for _, v := range vectors {
				for _, ratio := range ratios() {
					for _, c := range []Selector{Sampled{Ratio: ratio}, GaussianK{Ratio: ratio}} {
						sel, k := c.Bind(n), Entries(ratio, n)
						residual, grad := pair(r, v, n)
						sum := added(residual, grad)
						for i, x := range sum {
							if x != x {
								residual[i], grad[i], sum[i] = 0, 0, 0
							}
						}
						s.Reset(n)
						sel.Select(w, &s, 0, residual, grad)
						what := c.Name() + ": " + label(v, n, ratio)
						checkConserved(t, what, &s, residual, sum)
						if got := s.Count(); 4*got < k || got > 4*k || sel.Last().Exact && got != k {
							t.Errorf("%s: %d sent, want about %d", what, got, k)
						}
						least := float64(sel.Last().Threshold)
						for _, x := range residual {
							if math.Abs(float64(x)) > least {
								t.Fatalf("%s: %v is kept, above the threshold %v", what, x, least)
							}
						}
					}
				}
			}
		}
	})
}

// On what they are made for, the estimates need no exact selection.
func TestEstimatesSuffice(t *testing.T) {
	const n = 1 << 20
	r := rand.New(rand.NewPCG(15, 16))
	for _, c := range []Selector{Sampled{Ratio: 0.01}, GaussianK{Ratio: 0.01}, Sampled{Ratio: 0.1}, GaussianK{Ratio: 0.1}} {
		var w Workspace
		s, sel, grad := Sparse{Len: n}, c.Bind(n), zeros(n)
		vectors[0].fill(r, grad)
		sel.Select(&w, &s, 0, zeros(n), grad)
		if sel.Last().Exact {
			t.Errorf("%s of normal values was exact", c.Name())
		}
	}
}

// A NaN is always among what is sent, where it is found.
func TestNaNIsSent(t *testing.T) {
	const n = 10_000
	for _, c := range []Selector{TopK{Ratio: 0.001}, Threshold{Least: 1e30}, DLGS{Ratio: 0.001}, Sampled{Ratio: 0.001}, GaussianK{Ratio: 0.001}} {
		r := rand.New(rand.NewPCG(17, 18))
		w := NewWorkspace(nil)
		sel, residual, grad := c.Bind(n), zeros(n), zeros(n)
		for step := range 3 {
			vectors[0].fill(r, grad)
			if step == 2 {
				grad[7777] = float32(math.NaN())
			}
			s := Sparse{Len: n}
			sel.Select(w, &s, 0, residual, grad)
			if at := s.nan(0); (at >= 0) != (step == 2) || at >= 0 && s.Index[at] != 7777 {
				t.Errorf("%s, step %d: NaN found at entry %d", c.Name(), step, at)
			}
		}
	}
}
