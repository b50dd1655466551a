package nn

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// frozenModel is every kind of operation that has parameters, on the way from x to a loss.
func frozenModel(t *testing.T, freeze ...string) (ps *Params, loss func(t *Tape) *Tensor) {
	t.Helper()
	ps = NewParams(1)
	conv, norm := ps.Conv2D("conv", 2, 4, 3), ps.BatchNorm("bn", 4)
	group, fc := ps.LayerNorm("gn", 4), ps.Dense("fc", 4*9, 6)
	ln, lstm, gru := ps.LayerNorm("ln", 6), ps.LSTM("lstm", Uniform(1), 6, 5), ps.GRU("gru", Uniform(1), 5, 6)
	emb, head := ps.New("emb", Uniform(1), 7, 6), ps.Dense("head", 6, 3)
	if err := ps.Freeze(freeze...); len(freeze) > 0 && err != nil {
		t.Fatal(err)
	}
	x := NewTensor(4, 3, 3, 2)
	copy(x.Data, random(rand.New(rand.NewPCG(1, 2)), x.Len()))
	loss = func(t *Tape) *Tensor {
		y := t.BatchNorm(t.Conv2D(x, conv, Conv{Pad: 1}), norm, nil, ReLU)
		y = t.LayerNorm(t.Dense(t.Flatten(t.GroupNorm(y, group, 2)), fc, Tanh), ln)
		y = t.GRU(t.LSTM(y, lstm, nil, 2), gru, nil, 2)
		y = t.Add(y, t.Embedding([]int32{1, 2, 1, 6}, emb))
		l, _ := t.SoftmaxCrossEntropy(t.Dense(y, head, Identity), []int32{0, 1, 2, 0})
		return l
	}
	if err := ps.Arrange(loss); err != nil {
		t.Fatal(err)
	}
	return ps, loss
}

// What is frozen keeps its value and has no slot; the others have the gradients that they had, in the same order.
func TestFreeze(t *testing.T) {
	whole, loss := frozenModel(t)
	tape := NewTape(TapeConfig{Threads: 2})
	defer tape.Close()
	tape.Backward(loss(tape), func(int) {})
	for _, patterns := range [][]string{{"conv.*"}, {"*.bias"}, {"conv.*", "bn.*", "gn.*", "fc.*"}, {"fc.*", "lstm.*", "gru.*"}, {"*.weight*"}, {"emb", "ln.*", "bn.weight"}} {
		ps, loss := frozenModel(t, patterns...)
		own := NewTape(TapeConfig{Threads: 2})
		defer own.Close()
		var got []int
		own.Backward(loss(own), func(slot int) { got = append(got, slot) })
		if !slices.Equal(got, sequence(len(ps.Slots()))) || len(ps.Frozen())+len(ps.Slots()) != len(whole.Slots()) || ps.Count() != whole.Count() {
			t.Errorf("%v: reported %v of %d slots, %d are frozen", patterns, got, len(ps.Slots()), len(ps.Frozen()))
		}
		at := 0
		for _, p := range whole.List() {
			i := slices.IndexFunc(ps.List(), func(q *Param) bool { return q.Name == p.Name })
			q := ps.List()[i]
			switch {
			case !slices.Equal(p.Data, q.Data):
				t.Errorf("%v: %s has other values", patterns, p.Name)
			case q.Frozen() != (i >= len(ps.Slots())):
				t.Errorf("%v: %s is parameter %d of %d that are trained", patterns, p.Name, i, len(ps.Slots()))
			case !q.Frozen() && (!slices.Equal(p.Grad, q.Grad) || ps.Slots()[i].Name != p.Name || i != at):
				t.Errorf("%v: %s has another gradient, or place %d and not %d", patterns, p.Name, i, at)
			case !q.Frozen():
				at++
			}
		}
		ready := func(int) {}
		step := func() {
			own.Reset()
			own.Backward(loss(own), ready)
		}
		step()
		if slices.Contains(patterns, "conv.*") && len(patterns) == 4 && ps.List()[len(ps.List())-1].Grad != nil {
			t.Error("backward went where nothing is trained")
		}
		if n := testing.AllocsPerRun(3, step); n > 2 && !raceDetector { // the scene's own labels and ids
			t.Errorf("%v: %v allocations a step", patterns, n)
		}
	}
}

func TestRatesAreInTheSlots(t *testing.T) {
	ps := NewParams(1)
	a, b := ps.Dense("body", 3, 3), ps.Dense("head", 3, 2)
	if err := ps.SetRate(0.1, "body.*"); err != nil {
		t.Fatal(err)
	}
	if err := ps.Arrange(func(t *Tape) *Tensor {
		return t.Mean(t.Dense(t.Dense(NewTensor(1, 3), a, Identity), b, Identity))
	}); err != nil {
		t.Fatal(err)
	}
	for _, s := range ps.Slots() {
		if want := map[bool]float64{true: 0.1, false: 1}[strings.HasPrefix(s.Name, "body")]; s.Rate != want {
			t.Errorf("%s has the rate %v, want %v", s.Name, s.Rate, want)
		}
	}
	if err := ps.Freeze("body.*"); err == nil || !strings.Contains(err.Error(), "Freeze: Arrange has laid") {
		t.Errorf("%v", err)
	}
}

func TestFreezeFaults(t *testing.T) {
	ps := NewParams(1)
	l := ps.Dense("l", 2, 2)
	ps.NewTable("rows", UniformRows(1), 3, 2)
	err := ps.Freeze("l.weight", "[", "none", "r*")
	for _, want := range []string{`pattern "[": syntax error`, `pattern "none": no parameter has such a name`, `pattern "r*": it matches table rows`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to hold %q", err, want)
		}
	}
	if l.W.Frozen() {
		t.Error("a call with faults froze something")
	}
	if err := ps.SetRate(0, "l.*"); err == nil || !strings.Contains(err.Error(), "factor 0") {
		t.Errorf("%v", err)
	}
	all := NewParams(1)
	w := all.New("w", Zeros, 1)
	if err := all.Freeze("*"); err != nil {
		t.Fatal(err)
	}
	if err := all.Arrange(func(t *Tape) *Tensor { return t.Parameter(w) }); err == nil || !strings.Contains(err.Error(), "all 1 parameters are frozen") {
		t.Errorf("%v", err)
	}
}
