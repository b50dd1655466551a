package models

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// smallLM is a word language model small enough for tests.
func smallLM(t testing.TB, batch int, dropout float64) (model.Model, *nn.Params) {
	t.Helper()
	ps := nn.NewParams(1)
	m := buildLSTM(ps, model.Options{Batch: batch, Dropout: -1}, lstmSize{vocabulary: 11, width: 12, layers: 2, bound: 0.3})
	m.State.(*lstm).dropout = dropout
	b := model.Batch{N: batch, IDs: make([]int32, 4*batch), Labels: make([]int32, 4*batch)}
	err := m.Arrange(ps, b)
	if err != nil {
		t.Fatal(err)
	}
	return m, ps
}

// text is n sequences of the next steps tokens of n texts, from step on, with
// the tokens that follow.
func text(n, steps, step int) model.Batch {
	b := model.Batch{N: n}
	for i := range n {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		all := make([]int32, step+steps+1)
		for j := range all {
			all[j] = int32(r.IntN(11))
		}
		b.IDs = append(b.IDs, all[step:step+steps]...)
		b.Labels = append(b.Labels, all[step+1:]...)
	}
	return b
}

// Two batches that continue each other have the loss of one that is twice as
// long, whatever the number of sequences, and each sequence the one it has by
// itself.
func TestLSTMContinuesItsTexts(t *testing.T) {
	m, _ := smallLM(t, 3, 0)
	tape := nn.NewTape(nn.TapeConfig{})
	loss := func(b model.Batch) float64 {
		tape.ResetEval()
		l := m.Pass(tape, b).Loss
		if l.Terms != len(b.Labels) {
			t.Fatalf("%d terms, want %d", l.Terms, len(b.Labels))
		}
		return float64(l.Mean.Data[0])
	}
	long := loss(text(3, 8, 0))
	m.Reset()
	first := loss(text(3, 4, 0))
	saved := [][]float32{}
	for _, s := range m.State.Slices() {
		saved = append(saved, slices.Clone(s))
	}
	second := loss(text(3, 4, 4))
	if math.Abs((first+second)/2-long) > 1e-6 {
		t.Errorf("losses %v and %v of the halves, %v of the whole", first, second, long)
	}
	for i, s := range m.State.Slices() {
		copy(s, saved[i])
	}
	if again := loss(text(3, 4, 4)); again != second {
		t.Errorf("from the state saved the loss is %v, it was %v", again, second)
	}
	m.Reset()
	sum := 0.0
	for i := range 3 {
		b := text(3, 8, 0)
		b.N, b.IDs, b.Labels = 1, b.IDs[8*i:8*i+8], b.Labels[8*i:8*i+8]
		m.Reset()
		sum += loss(b)
	}
	if math.Abs(sum/3-long) > 1e-6 {
		t.Errorf("alone the sequences' mean loss is %v, together %v", sum/3, long)
	}
	if loss(text(5, 4, 0)); len(m.State.Slices()[0]) != 5*12 {
		t.Errorf("a larger batch leaves a state of %d values", len(m.State.Slices()[0]))
	}
}

func TestLSTMDropsOnlyInTraining(t *testing.T) {
	m, _ := smallLM(t, 2, 0.5)
	tape := nn.NewTape(nn.TapeConfig{})
	losses := map[float32]bool{}
	for seed := range uint64(4) {
		tape.Reset()
		tape.SetSeed(seed)
		m.Reset()
		l := m.Pass(tape, text(2, 4, 0)).Loss.Mean
		losses[l.Data[0]] = true
	}
	if len(losses) != 4 {
		t.Errorf("%d losses of four seeds", len(losses))
	}
	clear(losses)
	for seed := range uint64(4) {
		tape.ResetEval()
		tape.SetSeed(seed)
		m.Reset()
		l := m.Pass(tape, text(2, 4, 0)).Loss.Mean
		losses[l.Data[0]] = true
	}
	if len(losses) != 1 {
		t.Errorf("%d losses in evaluation", len(losses))
	}
}

func TestDropoutOption(t *testing.T) {
	for given, want := range map[float64]float64{0: 0.5, -1: 0, 0.2: 0.2} {
		if got := dropoutOf(model.Options{Dropout: given}, 0.5); got != want {
			t.Errorf("option %v of a model with 0.5 is %v, want %v", given, got, want)
		}
	}
}

func TestVocabularyIsTheDatas(t *testing.T) {
	spec, err := Lookup("lstm")
	if err != nil {
		t.Fatal(err)
	}
	ps := nn.NewParams(1)
	spec.Build(ps, model.Options{Vocabulary: 77})
	if want := spec.Params - (10000-77)*(650+650+1); ps.Count() != want {
		t.Errorf("%d parameters, want %d", ps.Count(), want)
	}
}

func TestByStep(t *testing.T) {
	got := byStep(nil, []int32{1, 2, 3, 4, 5, 6}, 2)
	if want := []int32{1, 4, 2, 5, 3, 6}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
