package bucket

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// counting selects a reading of Algorithm 2 of DLGS for the backward of a merged layer: its printed
// lines both add the time to the next layer's, and delay the start of that layer.
type counting int

const (
	addsTime   counting = iota // the next layer's time grows, and its start does not wait
	delaysTime                 // the next layer starts later, and its time does not grow
	countsBoth                 // the printed lines taken literally: the time counts twice
)

// paperLayers are the variables of the printed algorithm. Index 0 is layer 1 of the paper, the last
// in backward.
type paperLayers struct {
	step   Step
	sizes  []int
	back   []float64 // t_b
	merged []bool
	count  counting
}

func paperOf(s Step, count counting) paperLayers {
	p := paperLayers{step: s, merged: make([]bool, len(s.Layers)), count: count}
	for i := range s.Layers {
		l := len(s.Layers) - 1 - i
		p.sizes, p.back = append(p.sizes, s.Layers[l].Len), append(p.back, s.Backward[l])
	}
	return p
}

// merge merges layer l into layer l-1.
func (p paperLayers) merge(l int) paperLayers {
	p.sizes, p.back, p.merged = slices.Clone(p.sizes), slices.Clone(p.back), slices.Clone(p.merged)
	p.merged[l] = true
	p.sizes[l-1] += p.sizes[l]
	if p.count != delaysTime {
		p.back[l-1] += p.back[l]
	}
	return p
}

// iteration is t_iter by the paper's recurrences of the start times tau_b, tau_s and tau_c, from
// the last layer to the first.
func (p paperLayers) iteration() float64 {
	tauB, tauS, tauC := make([]float64, len(p.sizes)), make([]float64, len(p.sizes)), make([]float64, len(p.sizes))
	ts, tc := make([]float64, len(p.sizes)), make([]float64, len(p.sizes))
	top := len(p.sizes) - 1
	for l := top; l >= 0; l-- {
		if !p.merged[l] {
			ts[l], tc[l] = p.step.Costs.group(p.sizes[l])
		}
		switch {
		case l == top:
			tauB[l] = p.step.Forward
		case p.merged[l+1] && p.count == addsTime:
			tauB[l] = tauB[l+1]
		default:
			tauB[l] = tauS[l+1] + ts[l+1]
		}
		tauS[l] = tauB[l] + p.back[l]
		tauC[l] = tauS[l] + ts[l]
		if l < top {
			tauC[l] = max(tauC[l], tauC[l+1]+tc[l+1])
		}
	}
	return tauC[0] + tc[0] + p.step.Update + p.step.Rows
}

// plan is the cut at the layers that are not merged.
func (p paperLayers) plan() Plan {
	bits := 0
	for l, merged := range p.merged {
		if !merged {
			bits |= 1 << (len(p.merged) - 1 - l)
		}
	}
	return cut(p.step.Layers, bits)
}

// paperScan is Algorithm 2 of DLGS as printed: for l = L to 2 a merge stays if t_iter falls.
func paperScan(s Step, count counting) paperLayers {
	p := paperOf(s, count)
	best := p.iteration()
	for l := len(p.sizes) - 1; l > 0; l-- {
		if trial := p.merge(l); trial.iteration() < best {
			p, best = trial, trial.iteration()
		}
	}
	return p
}

// paperStep is a random step of the paper's model, which has no contention.
func paperStep(rng *rand.Rand, layers int, selects bool) Step {
	s := randomStep(rng, layers, selects)
	s.Costs.Contention = Contention{}
	return s
}

// TestExactIsTheBestOfAllMerges: of all 2^(L-1) merges of up to 14 layers, by the paper's own
// recurrences, none is shorter than the plan of the dynamic programme.
func TestExactIsTheBestOfAllMerges(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	for layers := 1; layers <= 14; layers++ {
		for i := range max(2, 60>>max(0, layers-8)) {
			s := paperStep(rng, layers, i%2 == 1)
			best := math.Inf(1)
			for bits := range 1 << (layers - 1) {
				p := paperOf(s, delaysTime)
				for l := layers - 1; l > 0; l-- {
					if bits>>(l-1)&1 == 1 {
						p = p.merge(l)
					}
				}
				best = min(best, p.iteration())
			}
			if got := s.total(Exact(s)); !near(got, best) {
				t.Fatalf("%d layers: exact takes %v, the best merge %v\n%+v", layers, got, best, s)
			}
		}
	}
}

// TestScanIsThePrintedScan: with the time of a merged layer counted once, added or as a delay, the
// printed scan has our plan and our predicted step; counted twice, its prediction is never shorter
// than its plan's step, and it keeps our plan where backward takes no time.
func TestScanIsThePrintedScan(t *testing.T) {
	rng := rand.New(rand.NewPCG(33, 34))
	others, longer := 0, 0
	for i := range 600 {
		s := paperStep(rng, 1+rng.IntN(40), i%2 == 1)
		want := Scan(s)
		for _, count := range []counting{addsTime, delaysTime} {
			p := paperScan(s, count)
			if got := p.plan(); !near(s.total(got), s.total(want)) || !near(p.iteration(), s.total(got)) {
				t.Fatalf("reading %d: plan %v of %v, predicted %v; want %v of %v\n%+v", count, got.Ends(), s.total(got), p.iteration(), want.Ends(), s.total(want), s)
			}
		}
		twice := paperScan(s, countsBoth)
		real := s.total(twice.plan())
		if predicted := twice.iteration(); predicted < real && !near(predicted, real) {
			t.Fatalf("counted twice: %v predicted for a step of %v", predicted, real)
		}
		if !slices.Equal(twice.plan(), want) {
			others++
		}
		if real > s.total(want) && !near(real, s.total(want)) {
			longer++
		}
		clear(s.Backward)
		if a, b := s.total(paperScan(s, countsBoth).plan()), s.total(Scan(s)); !near(a, b) {
			t.Fatalf("without backward: %v and %v", a, b)
		}
	}
	if others == 0 || longer == 0 {
		t.Errorf("counted twice: %d other plans, %d of them longer: the instances are too easy to tell", others, longer)
	}
	t.Logf("counted twice: %d other plans of 600, %d of them longer", others, longer)
}

// manySmall is a step of 54 blocks of a convolution and two vectors, over a link of 10 Gb/s with a
// latency in seconds.
func manySmall(latency float64, dlgs bool) Step {
	s := Step{Forward: 33e-3}
	at := 0
	for i := range 162 {
		n, took := 128, 0.1e-3
		if i%3 == 2 {
			n, took = 128*128*9, 1e-3
		}
		s.Layers, s.Backward = append(s.Layers, Param{Offset: at, Len: n}), append(s.Backward, took)
		at += n
	}
	s.Costs.Sends = []Send{{Payload: Payload{Unit: 4}, Fixed: latency, PerByte: 0.8e-9}}
	if dlgs {
		s.Costs.Sends[0].Payload = Payload{Density: 0.01, Unit: 8}
		s.Costs.Select = Curve{Fixed: 20e-6, PerValue: 0.3e-9}
	}
	return s
}

// bestFixed is the fixed plan with the shortest step of all sizes in steps of 128 values.
func bestFixed(s Step) (p Plan, bytes int) {
	best := math.Inf(1)
	for size := 512; size <= 64<<20; size += 64 << 10 {
		if q := Fixed(s.Layers, size); s.total(q) < best {
			p, bytes, best = q, size, s.total(q)
		}
	}
	return p, bytes
}

// TestPlannersWhereMergingPays: docs/tuning.md has the table that this test prints, and no planner
// is shorter than exact.
func TestPlannersWhereMergingPays(t *testing.T) {
	var b strings.Builder
	b.WriteString("| latency | gradients | `one` | `per-layer` | fixed, 25 MiB | best fixed | `mgwfbp` | printed scan | `dlgs-scan` | `exact` |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, latency := range []float64{0.1e-3, 1e-3, 5e-3} {
		for _, dlgs := range []bool{false, true} {
			s := manySmall(latency, dlgs)
			fixed, bytes := bestFixed(s)
			exact := s.total(Exact(s))
			name := map[bool]string{false: "all values", true: "`dlgs`, 1 %"}[dlgs]
			fmt.Fprintf(&b, "| %v ms | %s |", latency*1e3, name)
			for i, p := range []Plan{One(s.Layers), PerLayer(s.Layers), Fixed(s.Layers, 25<<20), fixed, MGWFBP(s), paperScan(s, countsBoth).plan(), Scan(s), Exact(s)} {
				took := s.total(p)
				if took < exact && !near(took, exact) {
					t.Errorf("latency %v: a plan of %v, exact has %v", latency, took, exact)
				}
				fmt.Fprintf(&b, " %.1f (%d)", took*1e3, len(p))
				if i == 3 {
					fmt.Fprintf(&b, " of %.1f MiB", float64(bytes)/(1<<20))
				}
				b.WriteString(" |")
			}
			b.WriteString("\n")
		}
	}
	t.Logf("milliseconds of a step, and the number of buckets:\n%s", b.String())
	text, err := os.ReadFile("../../docs/tuning.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), b.String()) {
		t.Error("docs/tuning.md has another table")
	}
}

// TestScanMergesTooMuch: the example of docs/tuning.md, in which each merge shortens the step and
// the resulting plan is longer than a fixed one.
func TestScanMergesTooMuch(t *testing.T) {
	s := Step{Layers: layersOf(16, 16, 16, 16), Backward: []float64{3, 3, 3, 3}, Costs: Costs{Sends: []Send{{Payload: Payload{Unit: 4}, Fixed: 4, PerByte: 1. / 64}}}}
	for ends, want := range map[string]float64{"0 1 2 3": 23, "1 2 3": 22, "2 3": 21, "3": 20, "1 3": 18} {
		var list []int
		for _, word := range strings.Fields(ends) {
			list = append(list, int(word[0]-'0'))
		}
		p, err := Cut(s.Layers, list)
		if err != nil || s.total(p) != want {
			t.Errorf("%s: %v, %v, want %v", ends, s.total(p), err, want)
		}
	}
	if got := Scan(s).Ends(); !slices.Equal(got, []int{3}) {
		t.Errorf("the scan ends at %v", got)
	}
	if got := MGWFBP(s).Ends(); !slices.Equal(got, []int{3}) {
		t.Errorf("the greedy ends at %v", got)
	}
	if got := s.total(Fixed(s.Layers, 128)); got != s.total(Exact(s)) {
		t.Errorf("two buckets take %v", got)
	}
}
