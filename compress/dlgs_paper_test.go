package compress

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/dlgspaper"
	"github.com/ringo-ml/ringo/internal/simd"
)

// paperPeriods are those that the rule is compared at.
var paperPeriods = []int{1, 8, 16, 64}

// paperRig is a compressor beside the paper's algorithm, whose layers are the compressor's
// selections without padding.
type paperRig struct {
	c      *Compressor
	place  [][]int // in the arena, of each layer's values
	layers []*dlgspaper.Layer
	r      *rand.Rand
	v      vector
	ranges map[string]int // how far from k reuse steps were
}

func newPaperRig(t *testing.T, d DLGS, params []Param, groups []Bucket, pool Pool) *paperRig {
	t.Helper()
	chain, err := NewChain(d)
	if err != nil {
		t.Fatal(err)
	}
	n := groups[len(groups)-1].Hi
	rig := &paperRig{r: rand.New(rand.NewPCG(91, uint64(n))), ranges: map[string]int{}}
	if rig.c, err = chain.Bind(params, n, pool); err == nil {
		err = rig.c.SetGroups(groups)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		lo := g.Lo
		for _, hi := range append(slices.Clone(g.Parts), g.Hi) {
			var place []int
			for i := lo; i < hi; i++ {
				if _, ok := rig.c.Layout().At(i); ok {
					place = append(place, i)
				}
			}
			if lo = hi; len(place) > 0 {
				rig.place = append(rig.place, place)
				rig.layers = append(rig.layers, &dlgspaper.Layer{Ratio: d.Ratio, Every: d.Every, Residual: zeros(len(place))})
			}
		}
	}
	return rig
}

// step compares a step of gradients that are so many times as large as usual, with NaN at a
// place of the arena unless it is negative.
func (rig *paperRig) step(scale float32, nan int) error {
	grads := zeros(rig.c.Layout().Len())
	for _, place := range rig.place {
		own := zeros(len(place))
		rig.v.fill(rig.r, own)
		for i, at := range place {
			if grads[at] = scale * own[i]; at == nan {
				grads[at] = float32(math.NaN())
			}
		}
	}
	var want, got []entry
	kept, layer := rig.c.Residual(0, len(grads)), 0
	for g, group := range rig.c.groups {
		var s Sparse
		if err := rig.c.Select(&s, g, grads[group.Lo:group.Hi]); err != nil {
			return err
		}
		for i, at := range s.Index {
			got = append(got, entry{group.Lo + int(at), s.Value[i]})
		}
		for part := range rig.c.parts[g] {
			if rig.c.parts[g][part].selection == nil {
				continue
			}
			place, l := rig.place[layer], rig.layers[layer]
			own := make([]float32, len(place))
			for i, at := range place {
				own[i] = grads[at]
			}
			places, values := l.Step(own)
			for i, p := range places {
				want = append(want, entry{place[p], values[i]})
			}
			rig.note(len(places), Entries(l.Ratio, len(place)))
			if last := rig.c.Last(g, part); last.Threshold != l.H {
				return fmt.Errorf("group %d, part %d: threshold %v, want %v", g, part, last.Threshold, l.H)
			}
			for i, at := range place {
				if !same(kept[at], l.Residual[i]) {
					return fmt.Errorf("%v is kept at %d, want %v", kept[at], at, l.Residual[i])
				}
			}
			layer++
		}
	}
	if !slices.EqualFunc(got, want, func(a, b entry) bool { return a.index == b.index && same(a.value, b.value) }) {
		return fmt.Errorf("%d entries are sent, %v, want %d, %v", len(got), got, len(want), want)
	}
	return nil
}

func (rig *paperRig) note(sent, k int) {
	switch {
	case sent > 4*k:
		rig.ranges["more than 4k"]++
	case 4*sent < k:
		rig.ranges["fewer than k/4"]++
	}
}

// paperScale is by how much the gradients of a step are larger: within a period some steps have
// far more to send than the first, and others far less.
func paperScale(step, every int) float32 { return []float32{1, 50, 1, 1e-4}[step/max(1, every/4)%4] }

// RulePaper is the paper's algorithm, bit for bit: what is sent, what is kept and the threshold,
// of groups of several layers and of single ones, of layers of few values, between padding.
func TestPaperRule(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine computes for seconds")
	}
	params, n := paddedParams()
	params = append(params, Param{"long", n, n + 3101})
	n += 3104
	merged := []Bucket{{Lo: 0, Hi: 48}, {Lo: 48, Hi: n}}
	apart := []Bucket{{Lo: 0, Hi: n, Parts: []int{16, 32, 64, 368, 400}}}
	ratios := map[int][]float64{1: {1e-9, 1}, 2: {0.05}} // by the number of groups
	for _, every := range paperPeriods {
		ranges := map[string]int{}
		for _, groups := range [][]Bucket{merged, apart} {
			for _, ratio := range ratios[len(groups)] {
				for _, v := range vectors {
					rig := newPaperRig(t, DLGS{Ratio: ratio, Every: every, Rule: RulePaper}, params, groups, nil)
					rig.v, rig.ranges = v, ranges
					for step := range every + 2 {
						if err := rig.step(paperScale(step, every), -1); err != nil {
							t.Fatalf("%s, every %d, ratio %v, step %d: %v", v.name, every, ratio, step, err)
						}
					}
				}
			}
		}
		if every > 1 && (ranges["more than 4k"] == 0 || ranges["fewer than k/4"] == 0) {
			t.Errorf("every %d: %v: the test shows nothing of what is sent outside of [k/4, 4k]", every, ranges)
		}
	}
}

// Nor does a long group look at a sample, on any kernels and with any threads.
func TestPaperRuleOfLongGroups(t *testing.T) {
	const n = 2*minSegment + 11
	try := func(t *testing.T, kernels *simd.Kernels, pool Pool) {
		rig := newPaperRig(t, DLGS{Ratio: 0.01, Every: 8, Rule: RulePaper}, []Param{{"long", 0, n}}, []Bucket{{Lo: 0, Hi: n + 5}}, pool)
		rig.c.work.kernels, rig.v = kernels, vectors[0]
		for step := range 10 {
			if err := rig.step(paperScale(step, 8), -1); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		}
	}
	for _, k := range simd.Levels() {
		if !testing.Short() {
			t.Run(k.Name(), func(t *testing.T) { try(t, k, nil) })
		}
	}
	t.Run("threads", func(t *testing.T) { try(t, nil, threads(3)) })
}

// A NaN is an error that names its parameter, in exact steps and in others.
func TestPaperRuleRefusesNaN(t *testing.T) {
	params, n := paddedParams()
	for nanStep := range 4 {
		rig := newPaperRig(t, DLGS{Ratio: 0.01, Every: 2, Rule: RulePaper}, params, []Bucket{{Lo: 0, Hi: n}}, nil)
		rig.v = vectors[0]
		for step := range nanStep {
			if err := rig.step(1, -1); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		}
		var e *ValueError
		if err := rig.step(1, params[4].Lo+7); !errors.As(err, &e) || e.Param != params[4].Name || e.Index != 7 {
			t.Errorf("step %d: %v does not name value 7 of %s", nanStep, err, params[4].Name)
		}
	}
}
