package nn

import (
	"fmt"
	"testing"
)

// The convolutions of the models, by where most of their time goes: forward,
// and forward with backward. GFLOP/s counts the multiplications and additions of
// the definition, whatever the algorithm saves.
func BenchmarkConv(b *testing.B) {
	for _, s := range []struct {
		n, side, in, out, kernel, stride int
	}{
		{32, 32, 3, 64, 3, 1}, {32, 32, 64, 64, 3, 1}, {32, 16, 128, 128, 3, 1}, {32, 8, 256, 256, 3, 1},
		{32, 4, 512, 512, 3, 1}, {32, 2, 512, 512, 3, 1},
		{32, 32, 16, 16, 3, 1}, {32, 16, 32, 32, 3, 1}, {32, 8, 64, 64, 3, 1}, {32, 32, 16, 32, 3, 2},
		{4, 224, 3, 64, 7, 2}, {4, 56, 64, 64, 3, 1}, {4, 28, 128, 128, 3, 1}, {4, 14, 256, 256, 3, 1}, {4, 7, 512, 512, 3, 1},
		{4, 56, 128, 128, 3, 2}, {4, 56, 64, 256, 1, 1}, {4, 56, 256, 64, 1, 1}, {4, 14, 256, 1024, 1, 1}, {4, 7, 512, 2048, 1, 1},
		{4, 56, 256, 512, 1, 2},
	} {
		for _, backward := range []bool{false, true} {
			name := fmt.Sprintf("%dx%d/%dto%d/k%ds%d/backward=%v", s.n, s.side, s.in, s.out, s.kernel, s.stride, backward)
			b.Run(name, func(b *testing.B) {
				ps := NewParams(1)
				l := ps.Conv2D("c", s.in, s.out, s.kernel)
				x := NewTensor(s.n, s.side, s.side, s.in)
				x.needs = s.in > 3
				cfg := Conv{Stride: s.stride, Pad: s.kernel / 2}
				var y *Tensor
				run := func(t *Tape) *Tensor { y = t.Conv2D(x, l, cfg); return t.dot(y, y.Data) }
				if err := ps.Arrange(run); err != nil {
					b.Fatal(err)
				}
				tape := NewTape(TapeConfig{})
				for b.Loop() {
					tape.Reset()
					y = tape.Conv2D(x, l, cfg)
					if backward {
						o := tape.ops[0].(*convOp)
						y.grad = sized(y.grad, y.Len())
						x.has = false
						o.backward(tape)
						tape.grads.give(&x.grad)
					}
				}
				passes := 1
				if backward {
					passes = 2
					if x.needs {
						passes = 3
					}
				}
				flops := 2 * float64(passes) * float64(y.Len()) * float64(s.kernel*s.kernel*s.in)
				b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
