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
