package nn

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// attentionScene is n sequences of queries, keys and values, and a loss.
type attentionScene struct {
	n, steps, heads, dim int

	ps *Params
	x  *Param // [n*steps, 3*heads*dim], as a parameter, so that it has a gradient
	c  []float32
}

func newAttention(t testing.TB, n, steps, heads, dim int) *attentionScene {
	t.Helper()
	m := &attentionScene{n: n, steps: steps, heads: heads, dim: dim, ps: NewParams(1)}
	width := heads * dim
	m.x = m.ps.New("x", Uniform(2), n*steps, 3*width)
	m.c = random(rand.New(rand.NewPCG(71, 72)), n*steps*width)
	if err := m.ps.Arrange(m.loss); err != nil {
		t.Fatal(err)
	}
	return m
}

// rows is every row of x, by a lookup.
func (m *attentionScene) rows() []int32 {
	ids := make([]int32, m.n*m.steps)
	for i := range ids {
		ids[i] = int32(i)
	}
	return ids
}

func (m *attentionScene) loss(t *Tape) *Tensor {
	return t.dot(t.Attention(t.Embedding(m.rows(), m.x), m.heads, m.steps), m.c)
}

// naive is the loss, its gradient and the result, in float64.
func (m *attentionScene) naive() (y, dx []float64) {
	width := m.heads * m.dim
	x := wide(m.x.Data)
	y, dx = make([]float64, m.n*m.steps*width), make([]float64, len(x))
	at := func(sample, step, part, head, j int) int {
		return (sample*m.steps+step)*3*width + part*width + head*m.dim + j
	}
	scale := 1 / math.Sqrt(float64(m.dim))
	for s := range m.n {
		for h := range m.heads {
			for i := range m.steps {
				p, sum := make([]float64, i+1), 0.0
				for k := range p {
					for j := range m.dim {
						p[k] += scale * x[at(s, i, 0, h, j)] * x[at(s, k, 1, h, j)]
					}
					p[k] = math.Exp(p[k])
					sum += p[k]
				}
				out := (s*m.steps+i)*width + h*m.dim
				dp, dot := make([]float64, i+1), 0.0
				for k := range p {
					p[k] /= sum
					for j := range m.dim {
						y[out+j] += p[k] * x[at(s, k, 2, h, j)]
						dx[at(s, k, 2, h, j)] += p[k] * float64(m.c[out+j])
						dp[k] += float64(m.c[out+j]) * x[at(s, k, 2, h, j)]
					}
					dot += p[k] * dp[k]
				}
				for k := range p {
					ds := p[k] * (dp[k] - dot) * scale
					for j := range m.dim {
						dx[at(s, i, 0, h, j)] += ds * x[at(s, k, 1, h, j)]
						dx[at(s, k, 1, h, j)] += ds * x[at(s, i, 0, h, j)]
					}
				}
			}
		}
	}
	return y, dx
}

var attentionSizes = [][4]int{{2, 9, 3, 5}, {1, 1, 1, 1}, {1, 2*attentionRows + 17, 2, 8}, {2, attentionRows, 1, 16}}

func TestAttentionAgainstTwin(t *testing.T) {
	for _, s := range attentionSizes {
		m := newAttention(t, s[0], s[1], s[2], s[3])
		y, dx := m.naive()
		eachTape(t, func(t *testing.T, tape *Tape) {
			tape.Reset()
			loss := m.loss(tape)
			for i, got := range tape.ops[1].result().Data {
				if !near(y[i], float64(got), 1e-5) {
					t.Fatalf("%v: y[%d] = %v, the twin has %v", s, i, got, y[i])
				}
			}
			tape.Backward(loss, func(int) {})
			for i, got := range m.x.Grad {
				if !near(dx[i], float64(got), 2e-5) {
					t.Fatalf("%v: dx[%d] = %v, the twin has %v", s, i, got, dx[i])
				}
			}
		})
	}
}

// The twin's gradient is the slope of its own result.
func TestAttentionAgainstFiniteDifferences(t *testing.T) {
	m := newAttention(t, 1, 5, 2, 3)
	_, dx := m.naive()
	for i := range dx {
		loss := func(d float32) (sum float64) {
			old := m.x.Data[i]
			m.x.Data[i] += d
			y, _ := m.naive()
			m.x.Data[i] = old
			for j, v := range y {
				sum += v * float64(m.c[j])
			}
			return sum
		}
		const h = 1.0 / 1024
		if slope := (loss(h) - loss(-h)) / (2 * h); !near(slope, dx[i], 1e-4) {
			t.Errorf("dx[%d] = %v, the result moves by %v", i, dx[i], slope)
		}
	}
}

// What comes later changes nothing before it, NaN included.
func TestAttentionIsCausal(t *testing.T) {
	m := newAttention(t, 1, attentionRows+9, 2, 8)
	tape := NewTape(TapeConfig{})
	m.loss(tape)
	before := slices.Clone(tape.ops[1].result().Data)
	const from = attentionRows + 3
	for i := from * 48; i < len(m.x.Data); i++ {
		m.x.Data[i] += 3
	}
	tape.Reset()
	m.loss(tape)
	if after := tape.ops[1].result().Data; !slices.Equal(after[:from*16], before[:from*16]) {
		t.Error("earlier results depend on later steps")
	} else if slices.Equal(after, before) {
		t.Error("later results do not depend on their own step")
	}
}

func TestAttentionBitsDoNotDependOnThreads(t *testing.T) {
	m := newAttention(t, 3, attentionRows+5, 2, 8)
	for _, k := range simd.Levels() {
		var want []float32
		for threads := 1; threads <= 3; threads++ {
			tape := NewTape(TapeConfig{Kernels: k, Threads: threads})
			tape.Backward(m.loss(tape), func(int) {})
			if want == nil {
				want = slices.Clone(m.x.Grad)
			} else if !slices.Equal(m.x.Grad, want) {
				t.Errorf("%s: other gradients with %d threads", k.Name(), threads)
			}
			tape.Close()
		}
	}
}

func TestAttentionDoesNotAllocate(t *testing.T) {
	m := newAttention(t, 2, 20, 2, 8)
	tape, rows, ready := NewTape(TapeConfig{}), m.rows(), func(int) {}
	step := func() {
		tape.Reset()
		tape.Backward(tape.dot(tape.Attention(tape.Embedding(rows, m.x), m.heads, m.steps), m.c), ready)
	}
	step()
	step()
	if n := testing.AllocsPerRun(5, step); n != 0 {
		t.Errorf("a steady step makes %v allocations, want 0", n)
	}
}

func TestAttentionWantsShapesThatFit(t *testing.T) {
	for _, c := range [][4]int{{6, 12, 3, 3}, {6, 12, 2, 4}, {6, 10, 1, 3}, {6, 12, 0, 3}, {6, 12, 2, 0}} {
		err := func() (err any) {
			defer func() { err = recover() }()
			NewTape(TapeConfig{}).Attention(NewTensor(c[0], c[1]), c[2], c[3])
			return nil
		}()
		if _, ok := err.(*ShapeError); !ok {
			t.Errorf("%v: %v, want a shape error", c, err)
		}
	}
}

func BenchmarkAttention(b *testing.B) {
	m := newAttention(b, 8, 256, 6, 64)
	rows := m.rows()
	tape, ready := NewTape(TapeConfig{}), func(int) {}
	flops := 2.0 * 8 * 256 * 256 * 384
	for _, backward := range []bool{false, true} {
		name := "forward"
		if backward {
			name, flops = "both", flops*3.5
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				tape.Reset()
				loss := tape.dot(tape.Attention(tape.Embedding(rows, m.x), m.heads, m.steps), m.c)
				if backward {
					tape.Backward(loss, ready)
				}
			}
			b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
