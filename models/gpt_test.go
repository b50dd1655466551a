package models

import (
	"math"
	"testing"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
)

// nanoGPT is one small enough for tests.
var nanoGPT = gptSize{vocabulary: 11, context: 8, layers: 2, width: 16, heads: 2}

// It starts from even odds and learns a batch by heart.
func TestGPTLearns(t *testing.T) {
	ps := nn.NewParams(1)
	m := buildGPT(ps, model.Options{}, nanoGPT)
	b := text(2, 8, 0)
	err := m.Arrange(ps, b)
	if err != nil {
		t.Fatal(err)
	}
	adam := &optim.AdamW{LR: 0.01, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8}
	if err := adam.Bind(len(ps.Values())); err != nil {
		t.Fatal(err)
	}
	tape := nn.NewTape(nn.TapeConfig{})
	var first, last float64
	for step := range 100 {
		tape.Reset()
		pass := m.Pass(tape, b)
		loss := pass.Loss.Mean
		last = float64(loss.Data[0])
		if step == 0 {
			first = last
		}
		if pass.Loss.Terms != 16 {
			t.Fatalf("a mean of %d terms, want 16", pass.Loss.Terms)
		}
		tape.Backward(loss, func(int) {})
		adam.BeginStep()
		adam.Update(0, ps.Values(), ps.Grads(), 1)
	}
	if math.Abs(first-math.Log(11)) > 0.2 || !(last < 0.2) {
		t.Errorf("the loss went from %v to %v, want log 11 and a tenth", first, last)
	}
}
