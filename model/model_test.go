package model

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/nn"
)

// tiny is a classifier of two numbers with a running mean and a state.
func tiny(ps *nn.Params) (Model, *counter) {
	fc, norm, state := ps.Dense("fc", 2, 4), ps.BatchNorm("norm", 4), new(counter)
	return Model{
		Forward: func(t *nn.Tape, b Batch) Outputs {
			state.passes[0]++
			x := t.BatchNorm(t.Reshape(t.Dense(b.Values, fc, nn.Identity), b.N, 1, 1, 4), norm, nil, nn.Identity)
			return Outputs{t.Flatten(x)}
		},
		Loss: CrossEntropy, Metrics: []Metric{Accuracy(), AUC(func(p Pass, i int) float32 { return max(0, p.Outputs[0].Data[4*i+1]) }), LogLoss()}, State: state,
	}, state
}

type counter struct{ passes [1]float32 }

func (c *counter) Slices() [][]float32 { return [][]float32{c.passes[:]} }
func (c *counter) Reset()              { c.passes[0] = 0 }

// The dry run leaves running statistics and the state as they were.
func TestArrangeLeavesNoTrace(t *testing.T) {
	ps := nn.NewParams(1)
	m, state := tiny(ps)
	before := ps.BufferList()[0].Data[0]
	sample := Spec{Input: []int{2}}.Sample(3)
	for i := range sample.Values.Data {
		sample.Values.Data[i] = float32(i)
	}
	if err := m.Arrange(ps, sample); err != nil {
		t.Fatal(err)
	}
	if state.passes[0] != 0 || ps.Buffers()[0] != before || len(ps.Slots()) != 4 {
		t.Errorf("after the dry run: state %v, buffers %v, %d slots", state.passes, ps.Buffers(), len(ps.Slots()))
	}
}

// However batches are cut, figures are those of the whole; words are never counted in training.
func TestFiguresOfParts(t *testing.T) {
	ps := nn.NewParams(1)
	m, _ := tiny(ps)
	if err := m.Arrange(ps, Spec{Input: []int{2}}.Sample(1)); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	whole := Spec{Input: []int{2}}.Sample(12)
	for i := range whole.Labels {
		whole.Labels[i], whole.Values.Data[2*i], whole.Values.Data[2*i+1] = int32(r.IntN(2)), r.Float32(), r.Float32()
	}
	count := func(sizes ...int) (Counts, [][]uint64) {
		tape, at := nn.NewTape(nn.TapeConfig{}), 0
		c, words := m.NewCounts(), m.NewWords()
		for _, n := range sizes {
			tape.ResetEval()
			b := Batch{N: n, Values: &nn.Tensor{Shape: []int{n, 2}, Data: whole.Values.Data[2*at : 2*(at+n)]}, Labels: whole.Labels[at : at+n]}
			p := m.Pass(tape, b)
			m.Count(&c, p, false)
			m.Samples(words, p)
			at += n
		}
		return c, words
	}
	c, words := count(12)
	want := m.Figures(c, words, false)
	if len(want) != 3 || want["accuracy"]*12 != math.Round(want["accuracy"]*12) {
		t.Fatalf("figures %v", want)
	}
	c, words = count(1, 7, 4)
	for name, v := range m.Figures(c, words, false) {
		if math.Abs(v-want[name]) > 1e-6 {
			t.Errorf("%s in parts is %v, of the whole %v", name, v, want[name])
		}
	}
	if training := m.Figures(c, nil, true); len(training) != 1 {
		t.Errorf("in training there are %v", training)
	}
	c.Clear()
	if slices.ContainsFunc(c.Fields(), func(f *float64) bool { return *f != 0 }) || len(m.Figures(c, m.NewWords(), false)) != 0 {
		t.Errorf("after Clear: %+v", c)
	}
}

// The regressions' metrics are those of their definitions.
func TestMetricsOfRegressions(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	p := Pass{Batch: Batch{N: 40}, Outputs: Outputs{nn.NewTensor(40, 1)}}
	var mean, absolute, squared, spread float64
	for i := range 40 {
		y, x := r.NormFloat64(), r.NormFloat64()
		p.Batch.Targets = append(p.Batch.Targets, float32(y))
		p.Outputs[0].Data[i] = float32(y + x/4)
		mean += float64(p.Batch.Targets[i]) / 40
	}
	for i, y := range p.Batch.Targets {
		d := float64(y) - float64(p.Outputs[0].Data[i])
		absolute, squared, spread = absolute+math.Abs(d)/40, squared+d*d, spread+(float64(y)-mean)*(float64(y)-mean)
	}
	for _, c := range []struct {
		m    Metric
		want float64
	}{{MAE(), absolute}, {R2(), 1 - squared/spread}} {
		sums := make([]float64, c.m.Sums)
		c.m.Add(sums, p)
		if v, ok := c.m.Value(sums); !ok || math.Abs(v-c.want) > 1e-9 {
			t.Errorf("%s is %v, %v, want %v", c.m.Name, v, ok, c.want)
		}
	}
	if v, ok := R2().Value([]float64{3, 6, 12, 0}); ok {
		t.Errorf("targets that are all 2 have an R² of %v", v)
	}
}

// As many events as are expected are a calibration of 1; without events there is none.
func TestCalibration(t *testing.T) {
	m := Calibration(Probability)
	p := Pass{Batch: Batch{N: 2, Labels: []int32{0, 1}}, Outputs: Outputs{&nn.Tensor{Shape: []int{2, 2}, Data: []float32{3, 3, 5, 5}}}}
	sums := make([]float64, 2)
	m.Add(sums, p)
	if v, ok := m.Value(sums); !ok || v != 1 {
		t.Errorf("two coins, one event: %v, %v", v, ok)
	}
	if _, ok := m.Value([]float64{1, 0}); ok {
		t.Error("without events there is a calibration")
	}
}

func TestPerplexityOfAbsurdLosses(t *testing.T) {
	for _, sums := range [][]float64{{1e9, 1}, {0, 0}} {
		if v, ok := Perplexity().Value(sums); ok {
			t.Errorf("sums %v have a perplexity of %v", sums, v)
		}
	}
}

// All faults of a model are told at once.
func TestValidate(t *testing.T) {
	ok, _ := tiny(nn.NewParams(1))
	if err := ok.Validate(); err != nil {
		t.Error(err)
	}
	half := Metric{Name: "half", Sums: 1}
	err := Model{Metrics: []Metric{{Name: "Mean Error"}, half, Accuracy(), Accuracy(), {Name: "loss", Samples: AUC(Probability).Samples, Order: AUC(Probability).Order}}}.Validate()
	for _, want := range []string{"no Forward", "no Loss", `"Mean Error": want a name`, `"half": want Sums`, `two metrics are called "accuracy"`, `two metrics are called "loss"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to hold %q", err, want)
		}
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		m    Metric
		v    float64
		want string
	}{{Accuracy(), 0.98765, "accuracy 98.77%"}, {AUC(Probability), 0.5, "AUC 0.5000"}, {Perplexity(), 12.345, "perplexity 12.35"}} {
		if got := c.m.Label() + " " + c.m.Text(c.v); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// A sample has the shape that its Spec says.
func TestSample(t *testing.T) {
	b := Spec{Input: []int{2, 3}, IDs: 2, Targets: 1}.Sample(4)
	if b.N != 4 || !slices.Equal(b.Values.Shape, []int{4, 2, 3}) || len(b.IDs) != 8 || len(b.Labels) != 0 || len(b.Targets) != 4 {
		t.Errorf("%+v", b)
	}
	if out := (&Outputs{b.Values}); len(out.List()) != 1 {
		t.Errorf("%d outputs", len(out.List()))
	}
}

// Squared is the mean over samples and targets, with its gradient.
func TestSquared(t *testing.T) {
	ps := nn.NewParams(1)
	fc := ps.Dense("fc", 1, 2)
	m := Model{Forward: func(t *nn.Tape, b Batch) Outputs { return Outputs{t.Dense(b.Values, fc, nn.Identity)} }, Loss: Squared}
	b := Batch{N: 3, Values: &nn.Tensor{Shape: []int{3, 1}, Data: []float32{1, 2, -1}}, Targets: []float32{1, 0, 2, -1, 0, 3}}
	if err := m.Arrange(ps, b); err != nil {
		t.Fatal(err)
	}
	tape := nn.NewTape(nn.TapeConfig{})
	p := m.Pass(tape, b)
	want, bias := 0.0, make([]float64, 2)
	for i, y := range b.Targets {
		d := float64(p.Outputs[0].Data[i]) - float64(y)
		want += d * d / 6
		bias[i%2] += 2 * d / 6
	}
	tape.Backward(p.Loss.Mean, func(int) {})
	if math.Abs(float64(p.Loss.Mean.Data[0])-want) > 1e-5 || p.Loss.Terms != 3 {
		t.Errorf("%v over %d terms, want %v over 3", p.Loss.Mean.Data[0], p.Loss.Terms, want)
	}
	for i, g := range bias {
		if math.Abs(float64(fc.B.Grad[i])-g) > 1e-5 {
			t.Errorf("gradient %d of the bias is %v, want %v", i, fc.B.Grad[i], g)
		}
	}
	ready := func(int) {}
	if n := testing.AllocsPerRun(5, func() {
		tape.Reset()
		tape.Backward(m.Pass(tape, b).Loss.Mean, ready)
	}); n != 0 {
		t.Errorf("%v allocations a step, want none", n)
	}
}
