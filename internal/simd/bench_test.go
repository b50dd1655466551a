package simd

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// The shapes of the MNIST network at batch 64, one image at a time for the
// convolutions, and a large square.
func BenchmarkGemm(b *testing.B) {
	for _, g := range []gemmCase{
		{m: 64, n: 500, kk: 800, bias: true, relu: true},
		{m: 64, n: 500, kk: 800, transB: true},
		{m: 64, n: 800, kk: 500, transB: true},
		{m: 64, n: 800, kk: 500},
		{m: 800, n: 500, kk: 64, transA: true},
		{m: 500, n: 800, kk: 64, transA: true},
		{m: 64, n: 10, kk: 500},
		{m: 500, n: 64, kk: 50, transA: true},
		{m: 1000, n: 1000, kk: 1000},
		{m: 1024, n: 1024, kk: 1024},
	} {
		for _, k := range Levels() {
			b.Run(fmt.Sprintf("%s/%s", g, k.Name()), func(b *testing.B) {
				var s Scratch
				x, y, c := make([]float32, g.m*g.kk), make([]float32, g.n*g.kk), make([]float32, g.m*g.n)
				lda, ldb := g.kk, g.n
				if g.transA {
					lda = g.m
				}
				if g.transB {
					ldb = g.kk
				}
				var e Epilogue
				if g.bias {
					e.ColBias = make([]float32, g.n)
				}
				e.ReLU = g.relu
				for b.Loop() {
					k.GemmEpilogue(&s, g.transA, g.transB, g.m, g.n, g.kk, x, lda, y, ldb, g.accumulate, c, g.n, e)
				}
				flops(b, g.m*g.n*g.kk)
			})
		}
	}
}

func flops(b *testing.B, products int) {
	b.ReportMetric(2*float64(products)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

var convolutions = []struct {
	name string
	m    int
	p    Patches
}{
	{"conv1", 20, Patches{Channels: 1, Height: 28, Width: 28, KernelHeight: 5, KernelWidth: 5}},
	{"conv2", 50, Patches{Channels: 20, Height: 12, Width: 12, KernelHeight: 5, KernelWidth: 5}},
}

// BenchmarkConvolution is one image: forward, the weights' gradient, and the
// input's (product and AddPatches), each with all its packing.
func BenchmarkConvolution(b *testing.B) {
	for _, c := range convolutions {
		rows, cols := c.p.Rows(), c.p.Cols()
		r := rand.New(rand.NewPCG(19, 20))
		image, w, dy := random(r, c.p.ImageSize()), random(r, c.m*rows), random(r, c.m*cols)
		bias, out, patches := random(r, c.m), random(r, c.m*cols), random(r, rows*cols)
		for _, k := range Levels() {
			var s Scratch
			for name, f := range map[string]func(){
				"forward": func() { k.GemmPatches(&s, c.m, w, rows, c.p, image, false, out, cols, Epilogue{RowBias: bias}) },
				"weights": func() { k.GemmPatchesT(&s, c.m, dy, cols, c.p, image, true, w, rows) },
				"input": func() {
					k.Gemm(&s, true, false, rows, cols, c.m, w, rows, dy, cols, false, patches, cols)
					k.AddPatches(&s, image, c.p, patches, cols)
				},
				"AddPatches": func() { k.AddPatches(&s, image, c.p, patches, cols) },
			} {
				b.Run(fmt.Sprintf("%s/%s/%s", c.name, name, k.Name()), func(b *testing.B) {
					clear(image)
					clear(w)
					for b.Loop() {
						f()
					}
					flops(b, c.m*rows*cols)
				})
			}
		}
	}
}

// BenchmarkElementwise counts the bytes each operation reads and writes.
func BenchmarkElementwise(b *testing.B) {
	for _, n := range []int{1, 256, 4096, 1 << 16, 1 << 20, 1 << 24} {
		x, y, z := make([]float32, n), make([]float32, n), make([]float32, n)
		for _, k := range Levels() {
			for _, op := range []struct {
				name    string
				streams int
				f       func()
			}{
				{"Add", 3, func() { k.Add(x, y) }},
				{"AddTo", 3, func() { k.AddTo(x, y, z) }},
				{"ReLUGrad", 3, func() { k.ReLUGrad(x, y, z) }},
				{"SumSquares", 1, func() { k.SumSquares(x) }},
				{"Momentum", 5, func() { k.Momentum(x, y, z, 0.005, 0.9, 1e-5, 1) }},
			} {
				b.Run(fmt.Sprintf("%s/%d/%s", op.name, n, k.Name()), func(b *testing.B) {
					b.SetBytes(int64(4 * n * op.streams))
					for b.Loop() {
						op.f()
					}
				})
			}
		}
	}
}

// BenchmarkMaxPool2 is the two pooling layers of the MNIST network, batch 64.
func BenchmarkMaxPool2(b *testing.B) {
	for _, s := range [][3]int{{64 * 20, 24, 24}, {64 * 50, 8, 8}} {
		n := s[0] * s[1] * s[2]
		x, y, arg := make([]float32, n), make([]float32, n/4), make([]uint8, n/4)
		for _, k := range Levels() {
			b.Run(fmt.Sprintf("forward/%dx%dx%d/%s", s[0], s[1], s[2], k.Name()), func(b *testing.B) {
				for b.Loop() {
					k.MaxPool2(y, arg, x, s[0], s[1], s[2], true)
				}
			})
			b.Run(fmt.Sprintf("backward/%dx%dx%d/%s", s[0], s[1], s[2], k.Name()), func(b *testing.B) {
				for b.Loop() {
					k.MaxPool2Grad(x, y, arg, s[0], s[1], s[2])
				}
			})
		}
	}
}

// BenchmarkCopy is the limit of what memory gives, and BenchmarkActivations
// what the curves take of it: both count bytes read and written.
func BenchmarkCopy(b *testing.B) {
	for _, n := range []int{4096, 1 << 16, 1 << 23} {
		r := rand.New(rand.NewPCG(43, 44))
		x, y := random(r, n), random(r, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(8 * n))
			for b.Loop() {
				copy(x, y)
			}
		})
	}
}

func BenchmarkActivations(b *testing.B) {
	for _, n := range []int{4096, 1 << 16, 1 << 23} {
		r := rand.New(rand.NewPCG(41, 42))
		x, y, z := random(r, n), random(r, n), random(r, n)
		for _, k := range Levels() {
			for _, op := range []struct {
				name    string
				streams int
				f       func()
			}{
				{"Exp", 2, func() { k.Exp(x, y) }},
				{"Sigmoid", 2, func() { k.Sigmoid(x, y) }},
				{"Tanh", 2, func() { k.Tanh(x, y) }},
				{"TanhGrad", 3, func() { k.TanhGrad(x, z, y) }},
				{"GELU", 2, func() { k.GELU(x, y) }},
				{"GELUGrad", 3, func() { k.GELUGrad(x, z, y) }},
				{"Max", 1, func() { k.Max(y) }},
				{"ExpSum", 1, func() { k.ExpSum(y, 1) }},
				{"ExpScale", 2, func() { k.ExpScale(x, y, 1, 0.5) }},
			} {
				b.Run(fmt.Sprintf("%s/%d/%s", op.name, n, k.Name()), func(b *testing.B) {
					b.SetBytes(int64(4 * n * op.streams))
					for b.Loop() {
						op.f()
					}
				})
			}
		}
	}
}
