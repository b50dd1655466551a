package kernels

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/nn"
)

// kernel is one thing that `meters kernels` times: a vector kernel, or a layer
// with its memory around one.
type kernel struct {
	name, shape string
	// flops or bytes of one run; the other is 0. Multiplications that a
	// convolution saves count as if they were made.
	flops, bytes float64
	make         func(k *simd.Kernels) (run func())
}

// list are all kernels: first what computes, then what moves memory.
func list() []kernel {
	return slices.Concat(productKernels(), layerKernels(), streamKernels(), reductionKernels(), updateKernels())
}

// noise is n values around zero, which repeat.
func noise(n int, seed uint64) []float32 {
	rnd := rand.New(rand.NewPCG(seed, 1))
	x := make([]float32, n)
	drawn := x[:min(n, 1<<16)]
	for i := range drawn {
		drawn[i] = rnd.Float32() - 0.5
	}
	for done := len(drawn); done > 0 && done < n; done *= 2 {
		copy(x[done:], x[:done])
	}
	return x
}

func productKernels() (out []kernel) {
	for _, p := range []struct {
		transA, transB bool
		m, n, k        int
	}{
		{false, false, 1024, 1024, 1024}, {false, true, 1024, 1024, 1024}, {true, false, 1024, 1024, 1024},
		{false, true, 20, 2600, 650}, {false, true, 512, 400, 273}, {false, true, 64, 500, 800},
	} {
		name := "gemm"
		if p.transA {
			name += " transposed A"
		}
		if p.transB {
			name += " transposed B"
		}
		out = append(out, kernel{
			name: name, shape: fmt.Sprintf("%d x %d x %d", p.m, p.k, p.n), flops: 2 * float64(p.m) * float64(p.n) * float64(p.k),
			make: func(k *simd.Kernels) func() {
				a, b, c, s := noise(p.m*p.k, 1), noise(p.k*p.n, 2), make([]float32, p.m*p.n), new(simd.Scratch)
				lda, ldb := p.k, p.n
				if p.transA {
					lda = p.m
				}
				if p.transB {
					ldb = p.k
				}
				return func() { k.Gemm(s, p.transA, p.transB, p.m, p.n, p.k, a, lda, b, ldb, false, c, p.n) }
			},
		})
	}
	return out
}

// layer makes a run of a layer on a tape: forward, or with backward the whole of
// a step but the update.
func layer(backward bool, build func(ps *nn.Params) func(t *nn.Tape) *nn.Tensor) func(*simd.Kernels) func() {
	return func(k *simd.Kernels) func() {
		ps := nn.NewParams(1)
		forward := build(ps)
		loss := func(t *nn.Tape) *nn.Tensor {
			y := forward(t)
			labels := make([]int32, y.Shape[0])
			loss, _ := t.SoftmaxCrossEntropy(t.Reshape(y, y.Shape[0], y.Len()/y.Shape[0]), labels)
			return loss
		}
		if err := ps.Arrange(loss); err != nil {
			panic(err) // the layers here fit their inputs
		}
		t := nn.NewTape(nn.TapeConfig{Kernels: k})
		return func() {
			t.Reset()
			if !backward {
				forward(t)
				return
			}
			t.Backward(loss(t), func(int) {})
		}
	}
}

func images(n, side, channels int) *nn.Tensor {
	x := nn.NewTensor(n, side, side, channels)
	copy(x.Data, noise(x.Len(), 3))
	return x
}

func layerKernels() (out []kernel) {
	for _, c := range []struct {
		n, side, in, out, size int
	}{{8, 32, 64, 64, 3}, {8, 8, 256, 256, 3}, {8, 32, 16, 16, 3}, {4, 56, 64, 256, 1}, {32, 28, 1, 20, 5}} {
		pad := c.size / 2
		if c.in == 1 {
			pad = 0
		}
		side := c.side + 2*pad - c.size + 1
		unit := 2 * float64(c.n*side*side*c.in*c.out*c.size*c.size)
		shape := fmt.Sprintf("%dx%dx%dx%d to %d", c.n, c.side, c.side, c.in, c.out)
		out = append(out, kernel{fmt.Sprintf("conv %dx%d", c.size, c.size), shape, unit, 0, layer(false, func(ps *nn.Params) func(*nn.Tape) *nn.Tensor {
			x, l := images(c.n, c.side, c.in), ps.Conv2D("conv", c.in, c.out, c.size)
			return func(t *nn.Tape) *nn.Tensor { return t.Conv2D(x, l, nn.Conv{Pad: pad}) }
		})})
		if c.in == c.out { // two layers: only the second has to pass a gradient on
			out = append(out, kernel{fmt.Sprintf("conv %dx%d train", c.size, c.size), "two of " + shape, 5 * unit, 0, layer(true, func(ps *nn.Params) func(*nn.Tape) *nn.Tensor {
				x, a, b := images(c.n, c.side, c.in), ps.Conv2D("a", c.in, c.out, c.size), ps.Conv2D("b", c.in, c.out, c.size)
				return func(t *nn.Tape) *nn.Tensor {
					return t.GlobalAvgPool(t.Conv2D(t.Conv2D(x, a, nn.Conv{Pad: pad}), b, nn.Conv{Pad: pad}))
				}
			})})
		}
	}
	const steps, n, width = 35, 20, 650
	out = append(out, kernel{"lstm", "35 steps, 20 x 650", 2 * steps * n * 4 * width * 2 * width, 0, layer(false, func(ps *nn.Params) func(*nn.Tape) *nn.Tensor {
		x := nn.NewTensor(steps*n, width)
		copy(x.Data, noise(x.Len(), 3))
		l := ps.LSTM("lstm", nn.Uniform(0.05), width, width)
		return func(t *nn.Tape) *nn.Tensor { return t.LSTM(x, l, nil, steps) }
	})})
	const heads, tokens, model = 6, 256, 384
	return append(out, kernel{"attention", "8 x 256, 6 heads, 384", 2 * 8 * tokens * tokens * model, 0, layer(false, func(ps *nn.Params) func(*nn.Tape) *nn.Tensor {
		x := nn.NewTensor(8*tokens, 3*model)
		copy(x.Data, noise(x.Len(), 3))
		return func(t *nn.Tape) *nn.Tensor { return t.Attention(x, heads, tokens) }
	})})
}

// streamKernels pass over arrays that caches do not hold.
func streamKernels() []kernel {
	var out []kernel
	shape := fmt.Sprintf("%d Mi values", streamed>>20)
	stream := func(name string, perValue float64, run func(k *simd.Kernels, a, b, c []float32)) {
		out = append(out, kernel{name, shape, 0, perValue * streamed, func(k *simd.Kernels) func() {
			a, b, c := noise(streamed, 1), noise(streamed, 2), noise(streamed, 3)
			return func() { run(k, a, b, c) }
		}})
	}
	rows := func(name string, perValue float64, width int, run func(k *simd.Kernels, a, b []float32)) {
		out = append(out, kernel{name, fmt.Sprintf("rows of %d", width), 0, perValue * float64(streamed/width*width), func(k *simd.Kernels) func() {
			a, b := noise(streamed, 1), noise(streamed, 2)
			return func() {
				for at := 0; at+width <= streamed; at += width {
					run(k, a[at:at+width], b[at:at+width])
				}
			}
		}})
	}
	stream("add", 12, func(k *simd.Kernels, a, b, _ []float32) { k.Add(a, b) })
	stream("add to", 12, func(k *simd.Kernels, a, b, c []float32) { k.AddTo(a, b, c) })
	stream("scale", 8, func(k *simd.Kernels, a, _, _ []float32) { k.Scale(a, 0.999) })
	stream("sum", 4, func(k *simd.Kernels, a, _, _ []float32) { k.Sum(a) })
	stream("sum of squares", 4, func(k *simd.Kernels, a, _, _ []float32) { k.SumSquares(a) })
	stream("relu", 8, func(k *simd.Kernels, a, b, _ []float32) { k.ReLU(a, b) })
	stream("relu gradient", 12, func(k *simd.Kernels, a, b, c []float32) { k.ReLUGrad(a, b, c) })
	stream("exp", 8, func(k *simd.Kernels, a, b, _ []float32) { k.Exp(a, b) })
	stream("sigmoid", 8, func(k *simd.Kernels, a, b, _ []float32) { k.Sigmoid(a, b) })
	stream("tanh", 8, func(k *simd.Kernels, a, b, _ []float32) { k.Tanh(a, b) })
	stream("gelu", 8, func(k *simd.Kernels, a, b, _ []float32) { k.GELU(a, b) })
	stream("gelu gradient", 12, func(k *simd.Kernels, a, b, c []float32) { k.GELUGrad(a, b, c) })
	stream("dropout", 8, func(k *simd.Kernels, a, b, _ []float32) { k.Dropout(a, b, simd.DropoutKey{1, 2}, 0, 1<<31, 2) })
	rows("softmax", 8, 10000, func(k *simd.Kernels, a, b []float32) { k.Softmax(a, b) })
	rows("softmax", 8, 256, func(k *simd.Kernels, a, b []float32) { k.Softmax(a, b) })
	return append(out,
		kernel{"layer norm", "rows of 384", 0, 8 * (streamed / 384 * 384), func(k *simd.Kernels) func() {
			x, y, gamma, beta := noise(streamed/384*384, 1), make([]float32, streamed/384*384), noise(384, 2), noise(384, 3)
			stats := make([]float32, 2*(streamed/384))
			return func() { k.LayerNorm(y, x, gamma, beta, stats, 1e-5) }
		}},
		kernel{"batch norm", "64x64x64x64, relu", 0, 12 * streamed, layer(false, func(ps *nn.Params) func(*nn.Tape) *nn.Tensor {
			x, l := images(64, 64, 64), ps.BatchNorm("norm", 64)
			return func(t *nn.Tape) *nn.Tensor { return t.BatchNorm(x, l, nil, nn.ReLU) }
		})},
		kernel{"max pool 2x2", "64x64x64x64", 0, 5.25 * streamed, layer(false, func(*nn.Params) func(*nn.Tape) *nn.Tensor {
			x := images(64, 64, 64)
			return func(t *nn.Tape) *nn.Tensor { return t.MaxPool(x, nn.Pool{Size: 2, Stride: 2}) }
		})},
		kernel{"average pool", "64x64x64x64, global", 0, 4 * streamed, layer(false, func(*nn.Params) func(*nn.Tape) *nn.Tensor {
			x := images(64, 64, 64)
			return func(t *nn.Tape) *nn.Tensor { return t.GlobalAvgPool(x) }
		})},
	)
}

// updateKernels are the optimizers, dense and by rows.
func updateKernels() []kernel {
	adam := simd.AdamFactors{Scale: 1, Keep: 0.999, Beta1: 0.9, Comp1: 0.1, Beta2: 0.999, Comp2: 0.001, Rate: 1e-3, Unbias: 1, Eps: 1e-8}
	shape := fmt.Sprintf("%d Mi values", streamed>>20)
	positive := func(seed uint64) []float32 {
		x := noise(streamed, seed)
		for i := range x {
			x[i] += 1
		}
		return x
	}
	const dim, table, looked = 10, 1000001, 512 * 26
	ids := func() []int32 {
		rnd := rand.New(rand.NewPCG(1, 2))
		out := make([]int32, looked)
		for i := range out { // ascending and unique, all over the table
			out[i] = int32(i*(table/looked) + rnd.IntN(table/looked))
		}
		return out
	}
	return []kernel{
		{"sgd", shape, 0, 12 * streamed, func(k *simd.Kernels) func() {
			p, g := noise(streamed, 1), noise(streamed, 2)
			return func() { k.SGDPlain(p, g, 1e-3, 0, 1) }
		}},
		{"sgd momentum", shape, 0, 20 * streamed, func(k *simd.Kernels) func() {
			p, v, g := noise(streamed, 1), noise(streamed, 2), noise(streamed, 3)
			return func() { k.Momentum(p, v, g, 1e-3, 0.9, 1e-5, 1) }
		}},
		{"adagrad", shape, 0, 20 * streamed, func(k *simd.Kernels) func() {
			p, s, g := noise(streamed, 1), positive(2), noise(streamed, 3)
			return func() { k.Adagrad(p, s, g, 1e-3, 0, 1, 1e-10) }
		}},
		{"adamw", shape, 0, 28 * streamed, func(k *simd.Kernels) func() {
			p, m, v, g := noise(streamed, 1), noise(streamed, 2), positive(3), noise(streamed, 4)
			return func() { k.AdamW(p, m, v, g, adam) }
		}},
		{"embedding look-up", "13312 rows of 10", 0, 8 * looked * dim, func(k *simd.Kernels) func() {
			data, dst, at := noise(table*dim, 1), make([]float32, looked*dim), ids()
			return func() { k.Lookup(dst, data, at, dim) }
		}},
		{"sgd of rows", "13312 rows of 10", 0, 12 * looked * dim, func(k *simd.Kernels) func() {
			data, g, at := noise(table*dim, 1), noise(looked*dim, 2), ids()
			return func() { k.SGDRows(data, at, g, dim, 1e-3, 1) }
		}},
		{"adagrad of rows", "13312 rows of 10", 0, 20 * looked * dim, func(k *simd.Kernels) func() {
			data, s, g, at := noise(table*dim, 1), make([]float32, table*dim), noise(looked*dim, 2), ids()
			return func() { k.AdagradRows(data, s, at, g, dim, 1e-3, 1, 1e-10) }
		}},
	}
}
