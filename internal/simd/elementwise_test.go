package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

var specials = []float32{
	float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 0, float32(math.Copysign(0, -1)),
	math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, 1e-39,
}

// lengths cross every unrolling and, with one, the size of an assembly call.
func lengths() (out []int) {
	for n := range 140 {
		out = append(out, n)
	}
	return append(out, 1000, callFloats-1, callFloats+77)
}

// twin is one operation: on a level, and element by element in plain Go.
type twin struct {
	name     string
	level    func(k *Kernels, x, y, z []float32)
	naive    func(x, y, z *float32)
	specials bool // NaN and infinities, too
}

var twins = []twin{
	{"Add", func(k *Kernels, x, y, _ []float32) { k.Add(x, y) }, func(x, y, _ *float32) { *x += *y }, true},
	{"AddTo", func(k *Kernels, x, y, z []float32) { k.AddTo(x, y, z) }, func(x, y, z *float32) { *x = *y + *z }, true},
	{"AddTo alias", func(k *Kernels, x, y, _ []float32) { k.AddTo(x, y, x) }, func(x, y, _ *float32) { *x = *y + *x }, true},
	{"Scale", func(k *Kernels, x, _, _ []float32) { k.Scale(x, 0.3) }, func(x, _, _ *float32) { *x *= 0.3 }, true},
	{"ReLU", func(k *Kernels, x, y, _ []float32) { k.ReLU(x, y) }, func(x, y, _ *float32) {
		if *x = *y; *y < 0 {
			*x = 0
		}
	}, true},
	{"ReLU in place", func(k *Kernels, x, _, _ []float32) { k.ReLU(x, x) }, func(x, _, _ *float32) {
		if *x < 0 {
			*x = 0
		}
	}, true},
	{"ReLUGrad", func(k *Kernels, x, y, z []float32) { k.ReLUGrad(x, y, z) }, func(x, y, z *float32) {
		if *x = 0; *z > 0 {
			*x = *y
		}
	}, true},
	{"ReLUGrad in place", func(k *Kernels, x, _, z []float32) { k.ReLUGrad(x, x, z) }, func(x, _, z *float32) {
		if !(*z > 0) {
			*x = 0
		}
	}, true},
	{"SoftmaxGrad", func(k *Kernels, x, y, _ []float32) { k.SoftmaxGrad(x, y, 0.7, 0.3) }, func(x, y, _ *float32) {
		*x = float32(*y*(*x-0.7)) * 0.3
	}, true},
}

func TestElementwise(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		for _, w := range twins {
			t.Run(w.name, func(t *testing.T) {
				r := rand.New(rand.NewPCG(13, 14))
				for _, n := range lengths() {
					w.check(t, k, r, n)
				}
			})
		}
	})
}

func (w twin) check(t *testing.T, k *Kernels, r *rand.Rand, n int) {
	var got, want [3][]float32
	var guards [3]func(*testing.T, string)
	for i := range got {
		got[i], guards[i] = guarded(r, n)
		if w.specials && n%2 == 1 {
			for j := range n/3 + 1 {
				got[i][(j*3+i)%n] = specials[r.IntN(len(specials))]
			}
		}
		want[i] = append([]float32(nil), got[i]...)
	}
	for i := range n {
		w.naive(&want[0][i], &want[1][i], &want[2][i])
	}
	w.level(k, got[0], got[1], got[2])
	for i := range got {
		sameValues(t, fmt.Sprintf("n=%d operand %d", n, i), got[i], want[i])
		guards[i](t, "operand")
	}
}

// sameValues compares bits, but any NaN equals any other.
func sameValues(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if got[i] != got[i] && want[i] != want[i] {
			continue
		}
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// Sums follow the order of their definition, bit by bit.
func TestSums(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(15, 16))
		for _, n := range lengths() {
			x, _ := guarded(r, n)
			var sum, squares [16]float64
			for i, v := range x {
				sum[i%16] += float64(v)
				squares[i%16] += float64(float64(v) * float64(v))
			}
			if got, want := k.Sum(x), foldNaive(sum[:]); got != want {
				t.Fatalf("n=%d: Sum = %v, want %v", n, got, want)
			}
			if got, want := k.SumSquares(x), foldNaive(squares[:]); got != want {
				t.Fatalf("n=%d: SumSquares = %v, want %v", n, got, want)
			}
		}
	})
}

func foldNaive(x []float64) float64 {
	if len(x) == 1 {
		return x[0]
	}
	half := make([]float64, len(x)/2)
	for i := range half {
		half[i] = x[i] + x[i+len(half)]
	}
	return foldNaive(half)
}

// Sums are taken in every step.
func TestSumsAllocateNothing(t *testing.T) {
	x := make([]float32, 1000)
	for _, k := range Levels() {
		if n := testing.AllocsPerRun(100, func() { k.Sum(x); k.SumSquares(x) }); n >= 1 {
			t.Errorf("%s: %v allocations", k.Name(), n)
		}
	}
}

func TestLengthsMustAgree(t *testing.T) {
	x, y := make([]float32, 3), make([]float32, 4)
	for i, f := range []func(){
		func() { Host().Add(x, y) },
		func() { Host().AddTo(x, x, y) },
		func() { Host().ReLU(x, y) },
		func() { Host().ReLUGrad(x, y, y) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("case %d: no panic", i)
				}
			}()
			f()
		}()
	}
}
