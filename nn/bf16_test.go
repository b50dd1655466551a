package nn

import (
	"math"
	"slices"
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
// 3 % of the largest value. Convolutions by Winograd with few channels have the bits of fp32.
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

// TestBF16Winograd compares gradients of Winograd convolutions with enough channels to round points
// with those of fp32: the mean difference is 0.5 to 1.3 % of the mean magnitude, and 2.2 to 6.3
// times that of the same convolution without Winograd in bf16, as docs/training.md has it. The
// result and the bias's gradient have the bits of fp32, and threads change no bits.
func TestBF16Winograd(t *testing.T) {
	k := withBF16(t)
	for c, w := range winogradCases {
		if min(w.in, w.out) < roundedChannels || w.relu {
			continue
		}
		tape := NewTape(TapeConfig{Threads: 1})
		var want [4][]float32
		want[0], want[1], want[2], want[3] = convRun(tape, nil, c, true)
		for i := range want {
			want[i] = slices.Clone(want[i])
		}
		tape = NewTape(TapeConfig{Kernels: k, Threads: 1})
		var direct [4][]float32
		direct[0], direct[1], direct[2], direct[3] = convRun(tape, implicitGEMM{}, c, true)
		for i := range direct {
			direct[i] = slices.Clone(direct[i])
		}
		var first [4][]float32
		for _, threads := range []int{1, 2, 3} {
			tape := NewTape(TapeConfig{Kernels: k, Threads: threads})
			var got [4][]float32
			got[0], got[1], got[2], got[3] = convRun(tape, nil, c, true)
			for i, name := range []string{"y", "dx", "dw", "db"} {
				d, rounded := meanDistance(got[i], want[i]), i == 1 || i == 2
				ratio := d / meanDistance(direct[i], want[i])
				if rounded && (d < 0.0045 || d > 0.0135 || ratio < 2.15 || ratio > 6.35) || !rounded && d != 0 {
					t.Errorf("%v: %s is off by %.4f of its mean magnitude, %.2f times as far as without Winograd", w, name, d, ratio)
				}
				if threads == 1 {
					first[i] = slices.Clone(got[i])
				} else if d := distance(got[i], first[i]); d != 0 {
					t.Errorf("%v: with %d threads %s is off by %v", w, threads, name, d)
				}
			}
			tape.Close()
		}
	}
}

// meanDistance is the mean difference, in terms of the mean magnitude of b.
func meanDistance(a, b []float32) float64 {
	var off, size float64
	for i := range b {
		off += math.Abs(float64(a[i]) - float64(b[i]))
		size += math.Abs(float64(b[i]))
	}
	return off / max(size, 1e-30)
}

// goldenResults returns the result and the gradients of a file's operation on values that are not
// bfloat16, and whether it is a convolution by Winograd with few channels.
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
		single = single && min(o.win.Channels, o.out) < roundedChannels
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
