package nn

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkLayers is forward and backward of layers without products, as the
// models have them.
func BenchmarkLayers(b *testing.B) {
	for _, c := range []struct {
		name  string
		shape []int
		run   func(t *Tape, x *Tensor, l Norm) *Tensor
	}{
		{"batch norm and relu", []int{32, 32, 32, 16}, func(t *Tape, x *Tensor, l Norm) *Tensor { return t.BatchNorm(x, l, nil, ReLU) }},
		{"batch norm and relu", []int{32, 32, 32, 64}, func(t *Tape, x *Tensor, l Norm) *Tensor { return t.BatchNorm(x, l, nil, ReLU) }},
		{"batch norm, residual and relu", []int{4, 56, 56, 256}, func(t *Tape, x *Tensor, l Norm) *Tensor { return t.BatchNorm(x, l, x, ReLU) }},
		{"max-pool 2", []int{32, 32, 32, 64}, func(t *Tape, x *Tensor, _ Norm) *Tensor { return t.MaxPool(x, Pool{Size: 2}) }},
		{"max-pool 3/2", []int{4, 112, 112, 64}, func(t *Tape, x *Tensor, _ Norm) *Tensor { return t.MaxPool(x, Pool{Size: 3, Stride: 2, Pad: 1}) }},
		{"global average pool", []int{4, 7, 7, 2048}, func(t *Tape, x *Tensor, _ Norm) *Tensor { return t.GlobalAvgPool(x) }},
		{"layer norm", []int{2048, 768}, func(t *Tape, x *Tensor, l Norm) *Tensor { return t.LayerNorm(x, l) }},
		{"gelu", []int{2048, 3072}, func(t *Tape, x *Tensor, _ Norm) *Tensor { return t.GELU(x) }},
		{"tanh", []int{2048, 768}, func(t *Tape, x *Tensor, _ Norm) *Tensor { return t.Tanh(x) }},
		{"loss", []int{700, 10_000}, nil},
		{"loss", []int{64, 10}, nil},
	} {
		b.Run(fmt.Sprint(c.name, c.shape), func(b *testing.B) { benchmarkLayer(b, c.shape, c.run) })
	}
}

func benchmarkLayer(b *testing.B, shape []int, run func(t *Tape, x *Tensor, l Norm) *Tensor) {
	x := NewTensor(shape...)
	copy(x.Data, random(rand.New(rand.NewPCG(1, 1)), x.Len()))
	x.needs = true
	ps := NewParams(1)
	l := ps.BatchNorm("norm", shape[len(shape)-1])
	labels, slopes := make([]int32, shape[0]), make([]float32, x.Len())
	loss := func(t *Tape) *Tensor {
		if run == nil {
			loss, _ := t.SoftmaxCrossEntropy(x, labels)
			return loss
		}
		y := run(t, x, l)
		return t.given(y, slopes[:y.Len()])
	}
	if err := ps.Arrange(loss); err != nil {
		b.Fatal(err)
	}
	tape := NewTape(TapeConfig{})
	b.ReportAllocs()
	for b.Loop() {
		tape.Reset()
		tape.Backward(loss(tape), func(int) {})
	}
}

// givenOp is a loss of 0 whose gradient is given: nothing is computed.
type givenOp struct{ dotOp }

func (t *Tape) given(x *Tensor, c []float32) *Tensor {
	o := record[givenOp](t)
	o.x, o.c = x, c
	return t.begin(o, 1)
}

func (o *givenOp) backward(t *Tape) {
	copy(t.into(o.x), o.c)
	o.x.has = true
}
