package models

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
)

// clicks is a batch whose label says whether the first category is even.
func clicks(r *rand.Rand, n, rows int) model.Batch {
	b := model.Batch{N: n, Values: nn.NewTensor(n, ctrNumbers), IDs: make([]int32, n*ctrSlots), Labels: make([]int32, n)}
	for i := range b.Values.Data {
		b.Values.Data[i] = r.Float32()
	}
	for i := range b.IDs {
		b.IDs[i] = int32(r.IntN(rows))
	}
	for i := range b.Labels {
		b.Labels[i] = 1 - b.IDs[i*ctrSlots]%2
	}
	return b
}

func TestCTRLearns(t *testing.T) {
	const rows = 50
	ps := nn.NewParams(1)
	m := buildCTR(ps, model.Options{Rows: rows}, []int{32, 16})
	r := rand.New(rand.NewPCG(1, 2))
	err := m.Arrange(ps, clicks(r, 1, rows))
	if err != nil {
		t.Fatal(err)
	}
	opt := &optim.Adagrad{LR: 0.05, Eps: 1e-10}
	if err := opt.Bind(len(ps.Values())); err != nil {
		t.Fatal(err)
	}
	if err := opt.BindTables([][2]int{{rows, ctrDim}}); err != nil {
		t.Fatal(err)
	}
	tape := nn.NewTape(nn.TapeConfig{})
	var first, last float32
	for step := range 200 {
		tape.Reset()
		b := clicks(r, 64, rows)
		pass := m.Pass(tape, b)
		loss := pass.Loss.Mean
		tape.Backward(loss, func(int) {})
		opt.BeginStep()
		opt.Update(0, ps.Values(), ps.Grads(), 1)
		ids, grads := ps.Tables()[0].Grad()
		opt.UpdateRows(0, ps.Tables()[0].Data, ids, grads, 1)
		last = loss.Data[0]
		if step == 0 {
			first = last
		}
		checkScores(t, pass)
	}
	if !(last < 0.3*first) {
		t.Errorf("the loss went from %v to %v", first, last)
	}
}

// checkScores wants probabilities that give the loss.
func checkScores(t *testing.T, pass model.Pass) {
	t.Helper()
	sum, b, loss := 0.0, pass.Batch, pass.Loss.Mean.Data[0]
	for i := range b.N {
		p := model.Probability(pass, i)
		if b.Labels[i] == 0 {
			p = 1 - p
		}
		sum -= math.Log(float64(p))
	}
	if math.Abs(sum/float64(b.N)-float64(loss)) > 1e-3*(1+float64(loss)) {
		t.Fatalf("probabilities of log-loss %v, the loss is %v", sum/float64(b.N), loss)
	}
}
