package nn

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// everything has every operation that threads share, large enough to be cut: each kind of convolution and product, sums of parts,
// recurrence, rows of tables.
type everything struct {
	ps     *Params
	stem   Layer // 16 channels: one panel of weights, whose input channels are shared
	norm   Norm
	more   Layer // 64 channels
	whole  Layer // 1x1
	deep   Layer // more channels than tiles
	strong Layer // stride 2
	pooled Layer
	rows   Layer // of a product whose rows are shared
	cols   Layer
	lstm   LSTMLayer
	words  *Param
	table  *Table

	images, values *Tensor
	ids            []int32
}

const wideRows, wideWidth = 256, 48 // of values

func newEverything(t *testing.T) *everything {
	ps := NewParams(7)
	m := &everything{
		ps: ps, stem: ps.Conv2D("stem", 16, 32, 3), norm: ps.BatchNorm("norm", 32), more: ps.Conv2D("more", 32, 64, 3),
		whole: ps.Conv2D("whole", 64, 48, 1), deep: ps.Conv2D("deep", 16, 256, 3), strong: ps.Conv2D("strong", 256, 16, 3),
		pooled: ps.Conv2D("pooled", 16, 20, 5), rows: ps.Dense("rows", wideWidth, 40), cols: ps.Dense("cols", 40, 700),
		lstm: ps.LSTM("lstm", Uniform(0.1), wideWidth, 32), words: ps.New("words", Uniform(1), 50, 33),
		table: ps.NewTable("table", UniformRows(1), 40_000, 3),
	}
	r := rand.New(rand.NewPCG(1, 2))
	m.images, m.values = NewTensor(5, 16, 16, 16), NewTensor(wideRows, wideWidth)
	copy(m.images.Data, random(r, m.images.Len()))
	copy(m.values.Data, random(r, m.values.Len()))
	for range 5000 {
		m.ids = append(m.ids, int32(r.IntN(1+r.IntN(40_000))))
	}
	if err := ps.Arrange(func(t *Tape) *Tensor { return m.loss(t) }); err != nil {
		t.Fatal(err)
	}
	return m
}

// loss is the sum of squares of what every operation computes.
func (m *everything) loss(t *Tape) *Tensor {
	x := t.BatchNorm(t.Conv2D(m.images, m.stem, Conv{Pad: 1}), m.norm, nil, ReLU)
	x = t.Conv2D(x, m.more, Conv{Pad: 1, Activation: ReLU})
	x = t.Add(x, t.SubsamplePad(t.SubsamplePad(m.images, 1, 64), 1, 64))
	pooled := t.Conv2D(m.images, m.pooled, Conv{MaxPool2: true, Activation: ReLU})
	deep := t.Conv2D(t.Conv2D(t.MaxPool(m.images, Pool{Size: 4}), m.deep, Conv{Pad: 1}), m.strong, Conv{Stride: 2, Pad: 1})
	steps := t.LSTM(m.values, m.lstm, nil, 8)
	ids := make([]int32, 200)
	for i := range ids {
		ids[i] = m.ids[i] % 50
	}
	var all *Tensor
	for _, y := range []*Tensor{
		t.Conv2D(x, m.whole, Conv{}), pooled, deep, t.Dense(t.Dense(m.values, m.rows, Tanh), m.cols, ReLU), steps,
		t.Embedding(ids, m.words), t.EmbeddingTable(m.ids, 500, m.table, nil),
	} {
		y = t.Reshape(y, y.Len())
		y = t.Sum(t.Multiply(y, y))
		if all == nil {
			all = y
		} else {
			all = t.Add(all, y)
		}
	}
	return all
}

// bits are all that a step computes.
func (m *everything) bits(t *Tape) (out []float32) {
	for range 2 { // the second finds threads awake, and memory in use
		t.Reset()
		loss := m.loss(t)
		t.Backward(loss, func(int) {})
		_, rows := m.table.Grad()
		out = slices.Concat([]float32{loss.Data[0]}, m.ps.Grads(), rows)
	}
	t.ResetEval()
	return append(out, m.loss(t).Data[0])
}

// However many threads share them, operations compute the same bits. It holds invariant[thread-bits].
func TestThreadsDoNotChangeBits(t *testing.T) { threadsDoNotChangeBits(t, simd.Host()) }

func threadsDoNotChangeBits(t *testing.T, k *simd.Kernels) {
	m := newEverything(t)
	var want []float32
	for _, threads := range []int{1, 2, 3, 7} {
		for i := range m.norm.Mean.Data {
			m.norm.Mean.Data[i], m.norm.Var.Data[i] = 0, 1
		}
		tape := NewTape(TapeConfig{Kernels: k, Threads: threads})
		got := m.bits(tape)
		tape.Close()
		if want == nil {
			want = got
		}
		if i := firstDifference(got, want); i >= 0 {
			t.Errorf("%d threads: value %d of %d is %v, of one thread %v", threads, i, len(want), got[i], want[i])
		}
	}
}

// firstDifference is where a and b, equally long, differ, or -1.
func firstDifference(a, b []float32) int {
	for i := range b {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
