package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// ownBuffers completes a layer with statistics of its own.
func ownBuffers(l Layer) Norm {
	n := len(l.W.Data)
	return Norm{Gamma: l.W, Beta: l.B, Mean: &Buffer{Data: make([]float32, n)}, Var: &Buffer{Data: make([]float32, n)}}
}

// twinBatchNorm is the definition in float64; residual adds x itself.
func twinBatchNorm(c int, residual bool, act Activation) twin {
	return func(x, gamma, beta []float64) []float64 {
		y, n := make([]float64, len(x)), float64(len(x)/c)
		for ch := range c {
			mean, variance := 0.0, 0.0
			for i := ch; i < len(x); i += c {
				mean += x[i] / n
			}
			for i := ch; i < len(x); i += c {
				variance += (x[i] - mean) * (x[i] - mean) / n
			}
			for i := ch; i < len(x); i += c {
				y[i] = gamma[ch]*(x[i]-mean)/math.Sqrt(variance+1e-5) + beta[ch]
				if residual {
					y[i] += x[i]
				}
				y[i] = twinAct(act, y[i])
			}
		}
		return y
	}
}

func batchNormCase(name string, shape []int, residual bool, act Activation) opCase {
	c := shape[len(shape)-1]
	return opCase{name, shape, []int{c}, []int{c}, true,
		func(t *Tape, x *Tensor, l Layer) *Tensor {
			var r *Tensor
			if residual {
				r = x
			}
			return t.BatchNorm(x, ownBuffers(l), r, act)
		},
		twinBatchNorm(c, residual, act)}
}

func init() {
	opCases = append(opCases,
		batchNormCase("batch norm", []int{3, 2, 4, 5}, false, Identity),
		batchNormCase("batch norm and relu", []int{6, 3}, false, ReLU),
		batchNormCase("batch norm and residual", []int{2, 3, 3, 4}, true, Identity),
		batchNormCase("batch norm, residual and relu", []int{5, 2, 2, 3}, true, ReLU),
		batchNormCase("batch norm of many channels", []int{4, 33}, false, ReLU),
	)
}

// normModel is a batch normalisation between other operations, with a residual
// that needs a gradient.
type normModel struct {
	ps     *Params
	in, sk Layer
	norm   Norm
	x      *Tensor
	labels []int32
}

func newNormModel(t *testing.T, n, channels int) *normModel {
	t.Helper()
	m := &normModel{ps: NewParams(5), x: NewTensor(n, 4), labels: make([]int32, n)}
	m.in, m.sk, m.norm = m.ps.Dense("in", 4, channels), m.ps.Dense("skip", 4, channels), m.ps.BatchNorm("norm", channels)
	copy(m.x.Data, random(rand.New(rand.NewPCG(71, 72)), m.x.Len()))
	if err := m.ps.Arrange(m.loss); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *normModel) loss(t *Tape) *Tensor {
	y := t.BatchNorm(t.Dense(m.x, m.in, Identity), m.norm, t.Dense(m.x, m.sk, Identity), ReLU)
	loss, _ := t.SoftmaxCrossEntropy(y, m.labels)
	return loss
}

// Neither level nor threads change a bit, and a steady step allocates nothing.
func TestBatchNormKeepsTheBits(t *testing.T) {
	for _, s := range [][2]int{{3, 2}, {700, 50}, {9000, 16}, {300, 129}} {
		m := newNormModel(t, s[0], s[1])
		if m.norm.Var.Data[0] != 1 {
			t.Fatal("Arrange moved the running statistics")
		}
		var want []float32
		for threads := 1; threads <= 3; threads++ {
			tape := NewTape(TapeConfig{Threads: threads})
			step := func() {
				tape.Reset()
				tape.Backward(m.loss(tape), func(int) {})
			}
			step()
			got := slices.Clone(m.ps.Grads())
			if want == nil {
				want = got
			}
			if !slices.Equal(want, got) {
				t.Errorf("%v, %d threads: other gradients", s, threads)
			}
			if n := testing.AllocsPerRun(3, step); n != 0 {
				t.Errorf("%v, %d threads: %v allocations a step", s, threads, n)
			}
			tape.Close()
		}
	}
}

func TestBatchNormLevelsAgree(t *testing.T) {
	x := NewTensor(37, 5, 3)
	copy(x.Data, random(rand.New(rand.NewPCG(73, 74)), x.Len()))
	x.needs = true
	ps := NewParams(1)
	l := ps.BatchNorm("norm", 3)
	if err := ps.Arrange(func(t *Tape) *Tensor { return t.dot(t.BatchNorm(x, l, nil, ReLU), x.Data) }); err != nil {
		t.Fatal(err)
	}
	var want []float32
	eachTape(t, func(t *testing.T, tape *Tape) {
		y := tape.BatchNorm(x, l, nil, ReLU)
		got := slices.Clone(y.Data)
		tape.Backward(tape.dot(y, x.Data), func(int) {})
		got = append(append(got, x.gradient()...), ps.Grads()...)
		if want == nil {
			want = got
		}
		if !slices.Equal(want, got) {
			t.Error("other bits than the first level")
		}
	})
}

// The mean is far greater than the deviation: sums of squares alone would lose
// every digit.
func TestBatchNormOfALargeMean(t *testing.T) {
	x := NewTensor(20_000, 2)
	r := rand.New(rand.NewPCG(75, 76))
	for i := range x.Data {
		x.Data[i] = float32(1000 + r.NormFloat64()*0.5)
		if i%2 == 1 {
			x.Data[i] = float32(r.NormFloat64())
		}
	}
	x.Data[0], x.Data[1] = 1009, 25 // a first row that is none of the rest
	ps := NewParams(1)
	l := ps.BatchNorm("norm", 2)
	want := twinBatchNorm(2, false, Identity)(wide(x.Data), []float64{1, 1}, []float64{0, 0})
	for i, y := range NewTape(TapeConfig{}).BatchNorm(x, l, nil, Identity).Data {
		if math.Abs(float64(y)-want[i]) > 1e-4*(1+math.Abs(want[i])) {
			t.Fatalf("y[%d] = %v, want %v", i, y, want[i])
		}
	}
}

func TestBatchNormRunningStatistics(t *testing.T) {
	x := NewTensor(5, 2)
	copy(x.Data, []float32{1, 10, 2, 20, 3, 30, 4, 40, 5, 50})
	ps := NewParams(1)
	l := ps.BatchNorm("norm", 2)
	tape := NewTape(TapeConfig{})
	if err := ps.Arrange(func(t *Tape) *Tensor { return t.dot(t.BatchNorm(x, l, nil, Identity), x.Data) }); err != nil {
		t.Fatal(err)
	}
	tape.BatchNorm(x, l, nil, Identity)
	want := []float64{0.3, 3, 0.9 + 0.25, 0.9 + 25} // the unbiased variances are 2.5 and 250
	for i, v := range ps.Buffers() {
		if !near(float64(v), want[i], 1e-6) {
			t.Errorf("running statistics %v, want %v", ps.Buffers(), want)
		}
	}
	tape.ResetEval()
	before := slices.Clone(ps.Buffers())
	y := tape.BatchNorm(x, l, nil, ReLU)
	if !slices.Equal(before, ps.Buffers()) {
		t.Error("an evaluation moved the running statistics")
	}
	for i, v := range y.Data {
		c := i % 2
		if want := max(0, (float64(x.Data[i])-want[c])/math.Sqrt(want[2+c]+1e-5)); !near(float64(v), want, 1e-6) {
			t.Errorf("y[%d] = %v in an evaluation, want %v", i, v, want)
		}
	}
}

// BenchmarkBatchNorm is the first layer of ResNet-20 and one of VGG16, batch 32:
// bytes are those of two reads and a write forward, four reads and a write
// backward.
func BenchmarkBatchNorm(b *testing.B) {
	for _, s := range [][]int{{32, 32, 32, 16}, {32, 32, 32, 64}, {32, 4, 4, 512}} {
		x := NewTensor(s...)
		r := rand.New(rand.NewPCG(77, 78))
		copy(x.Data, random(r, x.Len()))
		dy := random(r, x.Len())
		x.needs = true
		ps := NewParams(1)
		l := ps.BatchNorm("norm", s[3])
		tape := NewTape(TapeConfig{})
		b.Run(fmt.Sprint("forward", s), func(b *testing.B) {
			b.SetBytes(int64(12 * x.Len()))
			for b.Loop() {
				tape.Reset()
				tape.BatchNorm(x, l, nil, ReLU)
			}
		})
		b.Run(fmt.Sprint("backward", s), func(b *testing.B) {
			b.SetBytes(int64(20 * x.Len()))
			tape.Reset()
			y := tape.BatchNorm(x, l, nil, ReLU)
			for _, p := range ps.List() {
				p.Grad = make([]float32, len(p.Data))
			}
			o := tape.ops[0].(*batchNormOp)
			for b.Loop() {
				y.grad, x.has = dy, false
				o.backward(tape)
				x.grad = nil
			}
		})
	}
}

func TestBatchNormOfNaNIsNaN(t *testing.T) {
	x := NewTensor(40, 3)
	x.Data[20*3+1] = float32(math.NaN())
	l := NewParams(1).BatchNorm("norm", 3)
	y := NewTape(TapeConfig{}).BatchNorm(x, l, nil, ReLU)
	for i, v := range y.Data {
		if nan := v != v; nan != (i%3 == 1) {
			t.Fatalf("y[%d] = %v: NaN belongs in channel 1 alone", i, v)
		}
	}
}
