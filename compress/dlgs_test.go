package compress

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// dlgsNaive is RuleCorrected as it is written down, by sorting.
type dlgsNaive struct {
	k, every, i int
	h, over     float32
}

func (d *dlgsNaive) step(g []float32) (sent []entry, used float32, exact bool) {
	exact = d.i%d.every == 0
	if !exact {
		sent = reachNaive(g, d.h)
		if len(sent)*4 < d.k || len(sent) > 4*d.k {
			exact = true
			d.deviates(min(4, float64(len(sent))/float64(d.k)))
		}
	}
	if exact {
		sent, d.h = topNaive(g, ranked(g), d.k)
		d.i = 0
	}
	d.i++
	used = d.h
	if d.every > 1 {
		d.correct(sent)
	}
	return sent, used, exact
}

func (d *dlgsNaive) deviates(share float64) {
	d.over = float32(min(16, max(-16, float64(d.over)+share-1)))
}

func (d *dlgsNaive) correct(sent []entry) {
	share := float64(len(sent)) / float64(d.k)
	d.deviates(share)
	if d.i%d.every == 0 || d.h == 0 || d.h == inf {
		return
	}
	count, stride := len(sent), 1
	if count >= 1024 {
		count, stride = 512, count/512
	}
	var some []float64
	for i := range count {
		some = append(some, math.Abs(float64(sent[i*stride].value)))
	}
	slices.Sort(some)
	median := some[len(some)/2]
	octave := math.Floor(math.Log2(share))
	log := octave - 1 + share/math.Exp2(octave)
	e := log/2 + float64(d.over)/2
	factor := 1 + float64(math.Abs(e)*min(1, median/float64(d.h)-1))
	if e < 0 {
		factor = 1 / factor
	}
	d.h = float32(float64(d.h) * factor)
}

func TestDLGS(t *testing.T) {
	eachWorkspace(t, func(t *testing.T, w *Workspace) {
		r := rand.New(rand.NewPCG(9, 10))
		var s Sparse
		for _, n := range []int{1, 5, 300, 10_007} {
			for _, v := range vectors {
				for _, ratio := range []float64{1e-9, 0.01, 0.1, 1} {
					checkDLGS(t, w, r, &s, v, n, DLGS{Ratio: ratio, Every: 4})
				}
			}
		}
	})
}

func checkDLGS(t *testing.T, w *Workspace, r *rand.Rand, s *Sparse, v vector, n int, c DLGS) {
	t.Helper()
	sel, naive := c.Bind(n), dlgsNaive{k: Entries(c.Ratio, n), every: c.Every}
	residual, grad := zeros(n), zeros(n)
	for step := range 7 {
		if v.fill(r, grad); step == 5 { // the gradients shrink, as after a drop of the rate
			for i := range grad {
				grad[i] /= 1000
			}
		}
		for i, x := range residual { // inf stays where it is not sent, and would become NaN
			if x == inf {
				residual[i], grad[i] = 1, 0
			}
		}
		sum := added(residual, grad)
		want, used, exact := naive.step(sum)
		s.Reset(n)
		sel.Select(w, s, 0, residual, grad)
		what := fmt.Sprintf("%s, %s, step %d", c.Name(), label(v, n, c.Ratio), step)
		checkSent(t, what, s, 0, 0, want, residual, sum)
		if got := sel.Last(); got.Exact != exact || got.Threshold != used {
			t.Fatalf("%s: %+v, want threshold %v, exact %v", what, got, used, exact)
		}
	}
}

// Whatever gradients do, what a period sends is within a quarter of what was asked for,
// and a threshold that stays sends much more while what is kept still grows.
func TestDLGSKeepsItsDensity(t *testing.T) {
	scenes := map[string]func(step int) float64{
		"steady":  func(int) float64 { return 1 },
		"fading":  func(step int) float64 { return math.Pow(0.97, float64(step)) },
		"growing": func(step int) float64 { return math.Pow(1.05, float64(step)) },
		"waves":   func(step int) float64 { return 1 + 0.4*math.Sin(float64(step)/8) },
		"rising":  func(step int) float64 { return 1 + 4*float64(step/40%2) },
	}
	const n, periods = 20_000, 6
	for name, scale := range scenes {
		for _, mean := range []float64{0, 1} { // nothing but noise, or as much that lasts
			for _, ratio := range []float64{0.01, 0.1} {
				means, exact := densities(n, periods, mean, scale, DLGS{Ratio: ratio})
				for i, d := range means {
					if math.Abs(d/ratio-1) > 0.25 {
						t.Errorf("%s, mean %v: period %d sends %.4f, want about %v", name, mean, i, d, ratio)
					}
				}
				if exact > periods+6 {
					t.Errorf("%s, mean %v, %v: %d selections were exact, want about %d", name, mean, ratio, exact, periods)
				}
				if name == "steady" {
					if means, _ := densities(n, periods, mean, scale, DLGS{Ratio: ratio, Rule: RulePaper}); means[0] < 1.5*ratio {
						t.Errorf("mean %v: a threshold that stays sends %.4f, and %v was asked for: the test shows nothing", mean, means[0], ratio)
					}
				}
			}
		}
	}
}

// densities is the mean density of each period of c on gradients with so large a lasting
// part beside normal noise, times scale(step); and how many selections were exact.
func densities(n, periods int, mean float64, scale func(step int) float64, c DLGS) (out []float64, exact int) {
	r := rand.New(rand.NewPCG(71, 72))
	sel, residual, grad, lasting := c.Bind(n), zeros(n), zeros(n), zeros(n)
	vectors[0].fill(r, lasting)
	var w Workspace
	s := &Sparse{}
	for period := range periods {
		sent := 0
		for i := range DefaultEvery {
			vectors[0].fill(r, grad)
			factor := scale(period*DefaultEvery + i)
			for j := range grad {
				grad[j] = float32(factor * (float64(grad[j]) + mean*float64(lasting[j])))
			}
			s.Reset(n)
			sel.Select(&w, s, 0, residual, grad)
			if sent += s.Count(); sel.Last().Exact {
				exact++
			}
		}
		out = append(out, float64(sent)/float64(n*DefaultEvery))
	}
	return out, exact
}

// Gradients may differ from step to step: each sends about what was asked for, where a
// threshold that stays sends anything.
func TestDLGSLooks(t *testing.T) {
	const n, steps = 200_000, 3 * DefaultEvery
	for ratio, most := range map[float64]float64{0.01: 2.2, 0.1: 1.3} { // of the one the sample has 40 entries
		worst := map[Rule]float64{}
		exact := map[Rule]int{}
		for _, rule := range Rules() {
			r := rand.New(rand.NewPCG(73, 74))
			sel, residual, grad := DLGS{Ratio: ratio, Rule: rule}.Bind(n), zeros(n), zeros(n)
			var w Workspace
			s := &Sparse{}
			for range steps {
				scale := float32(math.Exp2(2*r.Float64() - 1))
				for i := range grad {
					grad[i] = scale * float32(r.NormFloat64())
				}
				clear(residual)
				s.Reset(n)
				sel.Select(&w, s, 0, residual, grad)
				if sel.Last().Exact {
					exact[rule]++
				}
				off := math.Abs(math.Log(float64(s.Count()) / (ratio * n)))
				worst[rule] = max(worst[rule], off)
			}
		}
		if worst[RuleCorrected] > math.Log(most) || exact[RuleCorrected] != steps/DefaultEvery {
			t.Errorf("%v: a step sends %.2f times what was asked for, or as much less, and %d steps were exact", ratio, math.Exp(worst[RuleCorrected]), exact[RuleCorrected])
		}
		if worst[RulePaper] < math.Log(2.5) {
			t.Errorf("%v: a threshold that stays sends %.2f times what was asked for: the test shows nothing", ratio, math.Exp(worst[RulePaper]))
		}
	}
}

// The logarithm is near the true one, and exact at powers of two.
func TestLog2(t *testing.T) {
	for x := 0.01; x < 100; x *= 1.01 {
		if d := math.Log2(x) - log2(x); d < -1e-9 || d > 0.0861 {
			t.Errorf("log2(%v) = %v, want %v", x, log2(x), math.Log2(x))
		}
	}
	for i := -5; i < 5; i++ {
		if got := log2(math.Exp2(float64(i))); got != float64(i) {
			t.Errorf("log2 of 2 to the %d is %v", i, got)
		}
	}
}

// A step that reuses its threshold allocates nothing, by either rule, however many entries it
// sends, once it has sent as many.
func TestReuseAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	const n = 100_000
	for _, rule := range Rules() {
		chain, err := NewChain(DLGS{Ratio: 0.01, Every: 1 << 20, Rule: rule})
		if err != nil {
			t.Fatal(err)
		}
		c, err := chain.Bind([]Param{{"a", 0, n - 7}}, n, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, from, grads, s := rand.New(rand.NewPCG(75, 76)), zeros(2*n), zeros(n), Sparse{}
		vectors[0].fill(r, from)
		step := func() {
			copy(grads, from[r.IntN(n):])
			c.Layout().ClearPadding(0, grads)
			if err := c.Select(&s, 0, grads); err != nil {
				t.Fatal(err)
			}
		}
		for range 200 {
			step()
		}
		for range 20 {
			if got := testing.AllocsPerRun(1, step); got != 0 || c.Last(0, 0).Exact {
				t.Fatalf("%s: %v allocations in a step, exact: %v", rule, got, c.Last(0, 0).Exact)
			}
		}
	}
}
