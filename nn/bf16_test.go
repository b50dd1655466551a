package nn

import (
	"testing"

	"github.com/ringo-ml/ringo/internal/golden"
	"github.com/ringo-ml/ringo/internal/simd"
)

// withBF16 skips a test on processors without products of bfloat16.
func withBF16(t *testing.T) *simd.Kernels {
	k, err := simd.BF16()
	if err != nil {
		t.Skip(err)
	}
	return k
}

// TestBF16ThreadsDoNotChangeBits is TestThreadsDoNotChangeBits. It holds invariant[thread-bits].
func TestBF16ThreadsDoNotChangeBits(t *testing.T) { threadsDoNotChangeBits(t, withBF16(t)) }

// TestBF16Layers compares the layers' results and gradients with fp32: they differ, by less than
// 3 % of the largest value. Convolutions by Winograd have the bits of fp32.
func TestBF16Layers(t *testing.T) {
	k := withBF16(t)
	golden.Each(t, "testdata/golden", func(t *testing.T, f *golden.File) {
		switch f.Op {
		case "dense", "conv", "lstm", "gru", "attention", "matmul":
		default:
			return
		}
		want, _ := goldenResults(t, f, simd.Host())
		got, single := goldenResults(t, f, k)
		differs := false
		for name := range want {
			d := distance(got[name], want[name])
			differs = differs || d > 0
			if !(d < 0.03) {
				t.Errorf("%s: off by %.3f of its largest value", name, d)
			}
		}
		if differs == single {
			t.Errorf("results have the bits of fp32: %v, want %v", !differs, single)
		}
	})
}

// goldenResults returns the result and the gradients of a file's operation on values that are not
// bfloat16, and whether it is a convolution by Winograd.
func goldenResults(t *testing.T, f *golden.File, k *simd.Kernels) (out map[string][]float32, single bool) {
	g := &goldenCase{File: f, ps: NewParams(1), inputs: map[string]*Tensor{}, params: map[string]*Param{}, buffers: map[string]*Buffer{}}
	record := goldenRuns[f.Op](g)
	if err := g.ps.Arrange(func(t *Tape) *Tensor { return t.dot(record(t), g.Floats("dy")) }); err != nil {
		t.Fatal(err)
	}
	for _, x := range g.inputs {
		k.Scale(x.Data, 1.2345678)
	}
	k.Scale(g.ps.Values(), 1.2345678)
	tape := NewTape(TapeConfig{Kernels: k})
	y := record(tape)
	if o, ok := tape.ops[0].(*convOp); ok {
		_, single = o.algo.(winograd)
	}
	tape.Backward(tape.dot(y, g.Floats("dy")), func(int) {})
	out = map[string][]float32{"y": y.Data}
	for name, x := range g.inputs {
		out["d"+name] = x.gradient()
	}
	for name, p := range g.params {
		out["d"+name] = p.Grad
	}
	return out, single
}
