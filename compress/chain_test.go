package compress

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// other is a stage of no kind.
type other struct{}

func (other) Name() string    { return "other" }
func (other) Validate() error { return nil }

func TestChains(t *testing.T) {
	for _, c := range []struct {
		stages []Stage
		want   string // the chain, or what the error says, by "; "
	}{
		{nil, "fp32"},
		{[]Stage{FP16{}}, "fp16"},
		{[]Stage{Clip{1}, Momentum{0.9}, TopK{0.01}, FP16{}}, "clip(1) > momentum(0.9) > topk(0.01) > fp16"},
		{[]Stage{Momentum{0.9}, Clip{1}, DLGS{Ratio: 0.1}}, "momentum(0.9) > clip(1) > dlgs(0.1, every 16, corrected) > fp32"},
		{[]Stage{Clip{1}, Sign{}}, "clip(1) > sign"},
		{[]Stage{Threshold{0.5}, Sign{}}, "threshold(0.5) > sign"},
		{[]Stage{FP16{}, Int8{}}, "!int8; fp16"},
		{[]Stage{Int8{}, TopK{0.1}}, "!topk(0.1); int8"},
		{[]Stage{TopK{0.1}, DLGS{Ratio: 0.1}}, "!dlgs(0.1, every 16, corrected); topk(0.1)"},
		{[]Stage{TopK{0.1}, Clip{1}}, "!clip(1); topk(0.1)"},
		{[]Stage{FP16{}, Clip{1}}, "!clip(1); fp16"},
		{[]Stage{TopK{0.1}, Momentum{0.5}}, "!momentum(0.5); topk(0.1)"},
		{[]Stage{Momentum{0.9}, Momentum{0.5}, TopK{0.1}}, "!momentum(0.9); momentum(0.5)"},
		{[]Stage{Momentum{0.9}, FP16{}}, "!momentum(0.9); fp16"},
		{[]Stage{Momentum{0.9}}, "!momentum(0.9); fp32"},
		{[]Stage{TopK{0}, Clip{-1}}, "!topk: ratio 0; clip: -1"},
		{[]Stage{TopK{1.5}}, "!topk: ratio 1.5"},
		{[]Stage{DLGS{Ratio: math.NaN(), Every: -1}}, "!dlgs: exact every -1"},
		{[]Stage{DLGS{Ratio: math.NaN()}}, "!dlgs: ratio NaN"},
		{[]Stage{Sampled{Ratio: 0.1, Share: 2}}, "!sampled: share 2"},
		{[]Stage{Sampled{Ratio: -1}}, "!sampled: ratio -1"},
		{[]Stage{GaussianK{2}}, "!gaussiank: ratio 2"},
		{[]Stage{Threshold{-1}}, "!threshold: -1"},
		{[]Stage{Threshold{math.Inf(1)}}, "!threshold: +Inf"},
		{[]Stage{Momentum{1}, TopK{1}}, "!momentum: factor 1"},
		{[]Stage{other{}}, "!other"},
		{[]Stage{nil}, "!stage 0"},
	} {
		chain, err := NewChain(c.stages...)
		words, refused := strings.CutPrefix(c.want, "!")
		if !refused {
			if err != nil || chain.String() != c.want {
				t.Errorf("%v: %v, %v", c.want, chain, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%v was not refused", chain)
			continue
		}
		for _, w := range strings.Split(words, "; ") {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v, want it to say %q", err, w)
			}
		}
	}
}

func TestLayout(t *testing.T) {
	l, err := NewLayout([]Param{{"b", 16, 20}, {"a", 0, 10}, {"empty", 20, 20}, {"none", 16, 16}}, 32)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]string{0: "a", 9: "a", 10: "", 15: "", 16: "b", 19: "b", 20: "", 31: ""} {
		if p, ok := l.At(i); p.Name != want || ok != (want != "") {
			t.Errorf("value %d is of %q, want %q", i, p.Name, want)
		}
	}
	_, err = NewLayout([]Param{{"a", 0, 10}, {"a", 10, 12}, {"", 12, 13}, {"c", 11, 13}, {"d", 30, 33}, {"e", 34, 33}}, 32)
	for _, w := range []string{`"a" at 10`, `"" at 12`, `"c"`, `"d"`, `"e"`} {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%v, want it to name %s", err, w)
		}
	}
	if _, err := NewLayout(nil, -1); err == nil {
		t.Error("a negative length was taken")
	}
	if _, err := (&Chain{quantiser: FP32{}}).Bind([]Param{{"a", 0, 2}}, 1, nil); err == nil {
		t.Error("Bind took a bad layout")
	}
}

func TestClearPadding(t *testing.T) {
	l, err := NewLayout([]Param{{"a", 2, 4}, {"b", 4, 6}, {"none", 7, 7}, {"c", 8, 9}}, 12)
	if err != nil {
		t.Fatal(err)
	}
	for lo := range 13 {
		for hi := lo; hi <= 12; hi++ {
			x := zeros(hi - lo)
			for i := range x {
				x[i] = 1
			}
			l.ClearPadding(lo, x)
			for i, v := range x {
				if _, ok := l.At(lo + i); ok != (v == 1) {
					t.Errorf("[%d, %d): value %d is %v", lo, hi, lo+i, v)
				}
			}
		}
	}
}

// Every old rank's residual has one heir.
func TestHeirs(t *testing.T) {
	for before := 1; before < 9; before++ {
		for after := 1; after < 9; after++ {
			seen := map[int]int{}
			for rank := range after {
				for _, from := range Inherited(before, after, rank) {
					seen[from]++
				}
			}
			for r := range before {
				if seen[r] != 1 {
					t.Errorf("from %d to %d ranks: rank %d has %d heirs", before, after, r, seen[r])
				}
			}
			if len(seen) != before {
				t.Errorf("from %d to %d ranks: %v", before, after, seen)
			}
		}
	}
}

func TestTransforms(t *testing.T) {
	l, err := NewLayout([]Param{{"a", 0, 4}}, 4)
	if err != nil {
		t.Fatal(err)
	}
	nan := float32(math.NaN())
	x := []float32{-3, 0.5, nan, 2}
	Clip{1}.Bind(l).Apply(0, x)
	if x[0] != -1 || x[1] != 0.5 || x[2] == x[2] || x[3] != 1 {
		t.Errorf("clipped to %v", x)
	}
	m := Momentum{0.5}.Bind(l)
	m.Apply(1, []float32{8, 4})
	x = []float32{1, 1}
	m.Apply(1, x)
	if x[0] != 5 || x[1] != 3 {
		t.Errorf("the velocity is %v", x)
	}
	m.Sent(1, []int32{1})
	if v := m.State()[0]; v.Name != "velocity/a" || v.Data[1] != 5 || v.Data[2] != 0 {
		t.Errorf("the velocity is %v after what was sent", v)
	}
}

func TestNoSuchGroup(t *testing.T) {
	sparse, _ := NewChain(TopK{0.5})
	dense, _ := NewChain(Int8{})
	for _, c := range []*Chain{sparse, dense} {
		b, err := c.Bind([]Param{{"a", 0, 4}}, 4, nil)
		if err != nil {
			t.Fatal(err)
		}
		var s Sparse
		select_, round := b.Select(&s, 0, zeros(4)), b.Round(0, zeros(4))
		if c == sparse && (select_ != nil || round == nil) || c == dense && (select_ == nil || round != nil) {
			t.Errorf("%v: %v, %v", c, select_, round)
		}
		if b.Select(&s, 1, zeros(4)) == nil || b.Select(&s, 0, zeros(3)) == nil || b.Round(-1, nil) == nil {
			t.Errorf("%v: a call that fits no group was taken", c)
		}
		for _, g := range []Bucket{{Lo: -1, Hi: 4}, {Lo: 0, Hi: 5}, {Lo: 3, Hi: 2}, {Lo: 1, Hi: 4, Parts: []int{0}}, {Lo: 1, Hi: 4, Parts: []int{3, 2}}} {
			if err := b.SetGroups([]Bucket{g}); err == nil || !strings.Contains(err.Error(), "group 0") {
				t.Errorf("group %+v: %v", g, err)
			}
		}
	}
}

// The parameter is named whichever way the value was found.
func TestErrorsNameTheParameter(t *testing.T) {
	params := []Param{{"first", 0, 5000}, {"second", 5008, 9000}}
	for _, c := range []struct {
		stages []Stage
		bad    float32
	}{
		{[]Stage{TopK{0.001}}, float32(math.NaN())}, {[]Stage{DLGS{Ratio: 0.01}, FP16{}}, float32(math.NaN())},
		{[]Stage{TopK{0.001}, FP16{}}, 1e6}, {[]Stage{TopK{0.1}, Int8{}}, inf},
		{[]Stage{FP16{}}, 1e6}, {[]Stage{Int8{}}, inf}, {nil, float32(math.NaN())}, {[]Stage{Sign{}}, float32(math.NaN())},
	} {
		chain, err := NewChain(c.stages...)
		if err != nil {
			t.Fatal(err)
		}
		b, err := chain.Bind(params, 9008, nil)
		if err == nil {
			err = b.SetGroups([]Bucket{{Lo: 0, Hi: 5}, {Lo: 5, Hi: 9008, Parts: []int{5000}}})
		}
		if err != nil {
			t.Fatal(err)
		}
		grads := make([]float32, 9008-5)
		grads[8000-5] = c.bad
		if chain.Sparse() {
			err = b.Select(&Sparse{}, 1, grads)
		} else {
			err = b.Round(1, grads)
		}
		var e *ValueError
		if !errors.As(err, &e) || e.Param != "second" || e.Index != 8000-5008 || !strings.Contains(err.Error(), `"second"`) {
			t.Errorf("%v: %v", chain, err)
		}
	}
}

// A chain with a fixed magnitude has a twin that sends a share of whatever gradients are
// like.
func TestRelative(t *testing.T) {
	chain, err := NewChain(Clip{Max: 1e9}, Threshold{1e6}, FP16{})
	if err != nil {
		t.Fatal(err)
	}
	twin, ok := chain.Relative(0.1)
	if !ok || !twin.Reuses() || twin.Quantiser() != chain.Quantiser() || !strings.HasPrefix(twin.String(), "clip") {
		t.Errorf("%v of %v", twin, chain)
	}
	for _, share := range []float64{0, -1, 1.5, math.NaN()} {
		if out, ok := chain.Relative(share); ok || out != chain {
			t.Errorf("share %v: %v", share, out)
		}
	}
	if out, ok := twin.Relative(0.5); ok || out != twin {
		t.Errorf("%v of %v", out, twin)
	}
	samples, err := MeasureCosts(twin, nil, 1<<14)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range samples {
		if share := float64(s.Entries) / float64(s.Values); share < 0.03 || share > 0.4 || s.Reuse <= 0 {
			t.Errorf("%+v: %v of all values are sent, want about 0.1", s, share)
		}
	}
}
