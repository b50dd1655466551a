package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

var reductions = []Reduction{ReduceSum, ReduceMin, ReduceMax, ReduceProd}

// reduceNaive is one step, from the definitions: minimum and maximum compare,
// with the sign for zeros.
func reduceNaive(op Reduction, a, b float32) float32 {
	switch {
	case op == ReduceSum:
		return a + b
	case op == ReduceProd:
		return a * b
	case a != a || b != b:
		return float32(math.NaN())
	case a == 0 && b == 0:
		if math.Signbit(float64(a)) == (op == ReduceMin) {
			return a
		}
		return b
	case (a < b) == (op == ReduceMin):
		return a
	}
	return b
}

func reduceAllNaive(op Reduction, src []float32, scale float32) float32 {
	r := src[0]
	for _, x := range src[1:] {
		r = reduceNaive(op, r, x)
	}
	if r *= scale; r != r {
		return math.Float32frombits(0x7fc00000)
	}
	return r
}

// sown puts special values at some places of x, among them NaNs with all kinds
// of payloads.
func sown(r *rand.Rand, x []float32) {
	for range len(x) / 3 {
		v := specials[r.IntN(len(specials))]
		if v != v {
			v = math.Float32frombits(0x7f800001 + r.Uint32()>>31<<31 + r.Uint32()&0x7ffffe)
		}
		x[r.IntN(len(x))] = v
	}
}

// sameBits wants the same bits, of NaN too.
func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if g, w := math.Float32bits(got[i]), math.Float32bits(want[i]); g != w {
			t.Fatalf("%s: element %d of %d is %v (%#x), want %v (%#x)", what, i, len(want), got[i], g, want[i], w)
		}
	}
}

func TestReduceAll(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(71, 72))
		for _, n := range append(lengths(), callReduced/4/2-3, callReduced/4/3+77) {
			for _, op := range reductions {
				ns, nd := 1+r.IntN(6), 1+r.IntN(6)
				if n%3 == 0 {
					ns, nd = 2+n%2*2, 2+n%2*2
				}
				if n > 1000 {
					ns, nd = min(ns, 2), min(nd, 2)
				}
				for _, inPlace := range []bool{false, true} {
					checkReduceAll(t, k, r, op, n, ns, nd, inPlace)
				}
			}
		}
	})
}

func checkReduceAll(t *testing.T, k *Kernels, r *rand.Rand, op Reduction, n, ns, nd int, inPlace bool) {
	src, dst := make([][]float32, ns), make([][]float32, nd)
	var guards []func(*testing.T, string)
	for i := range src {
		x, check := guarded(r, n)
		sown(r, x)
		src[i], guards = x, append(guards, check)
	}
	for j := range dst {
		if inPlace && j < ns {
			dst[j] = src[ns-1-j]
			continue
		}
		x, check := guarded(r, n)
		dst[j], guards = x, append(guards, check)
	}
	scale := []float32{1, 1 / float32(ns), 0.3}[r.IntN(3)]
	want, column := make([]float32, n), make([]float32, ns)
	for i := range want {
		for j, x := range src {
			column[j] = x[i]
		}
		want[i] = reduceAllNaive(op, column, scale)
	}
	kept := make([][]float32, ns)
	for i, x := range src {
		kept[i] = append([]float32(nil), x...)
	}
	k.ReduceAll(op, dst, src, scale)
	at := fmt.Sprintf("%v of %d to %d, scale %v, in place %v", op, ns, nd, scale, inPlace)
	for _, y := range dst {
		sameBits(t, at, y, want)
	}
	for i, x := range src {
		if !inPlace || ns-1-i >= nd {
			sameBits(t, at+": a source", x, kept[i])
		}
	}
	for _, check := range guards {
		check(t, at)
	}
}

// Every pair of special values, both ways round, to the bit.
func TestCombineOfSpecials(t *testing.T) {
	values := append([]float32{1, -1, 0.1, math.Float32frombits(0x7f800001), math.Float32frombits(0xffc12345), 1e-45, 1.2e-38}, specials...)
	var a, b []float32
	for _, x := range values {
		for _, y := range values {
			a, b = append(a, x), append(b, y)
		}
	}
	eachLevel(t, func(t *testing.T, k *Kernels) {
		got, swapped := make([]float32, len(a)), make([]float32, len(a))
		for _, op := range reductions {
			k.Combine(op, got, a, b)
			k.Combine(op, swapped, b, a)
			for i := range a {
				want := reduceAllNaive(op, []float32{a[i], b[i]}, 1)
				if g := math.Float32bits(got[i]); g != math.Float32bits(want) || g != math.Float32bits(swapped[i]) {
					t.Errorf("%v of %v and %v is %#x, swapped %#x, want %#x", op, a[i], b[i], g, math.Float32bits(swapped[i]), math.Float32bits(want))
				}
			}
		}
	})
}

func TestCombineInPlace(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(73, 74))
		for _, n := range lengths() {
			for _, op := range reductions {
				a, checkA := guarded(r, n)
				b, checkB := guarded(r, n)
				want := make([]float32, n)
				for i := range want {
					want[i] = reduceAllNaive(op, []float32{a[i], b[i]}, 1)
				}
				other := append([]float32(nil), a...)
				k.Combine(op, a, a, b)
				sameBits(t, op.String()+" to the first", a, want)
				k.Combine(op, b, other, b)
				sameBits(t, op.String()+" to the second", b, want)
				checkA(t, "first")
				checkB(t, "second")
			}
		}
	})
}

// Reductions of a step allocate nothing, even with tables of operands made on
// the spot.
func TestReduceAllocatesNothing(t *testing.T) {
	x, y := make([]float32, 1000), make([]float32, 1000)
	for _, k := range Levels() {
		work := func() {
			k.Combine(ReduceMax, x, x, y)
			k.ReduceAll(ReduceSum, [][]float32{x, y}, [][]float32{x, y}, 0.5)
		}
		if n := testing.AllocsPerRun(100, work); n != 0 {
			t.Errorf("%s: %v allocations", k.Name(), n)
		}
	}
}

// Assembly cannot be preempted: a call moves a bounded number of bytes, in
// whole turns but for the last, however many operands there are.
func TestReduceCallsAreShort(t *testing.T) {
	for _, size := range []int{2, 4} {
		for _, operands := range []int{2, 3, 4, 8, 32, 2000} {
			for _, n := range []int{1, 63, 1000, 1 << 20, 1<<20 + 1} {
				calls := 0
				for left := n; left > 0; calls++ {
					next := reduceCut(left, size, operands)
					if bytes := next * size * operands; bytes > max(callReduced, 256*operands) {
						t.Fatalf("%d bytes of %d operands", bytes, operands)
					}
					if left -= next; left > 0 && next%64 != 0 {
						t.Fatalf("a call of %d values of %d bytes before the last", next, size)
					}
				}
				if most := 2 + 2*n*size*operands/callReduced; operands < 1000 && calls > most {
					t.Errorf("%d values for %d operands in %d calls, want at most %d", n, operands, calls, most)
				}
			}
		}
	}
}

func TestReduceWantsOperands(t *testing.T) {
	x, y := make([]float32, 3), make([]float32, 4)
	for name, f := range map[string]func(){
		"no source":   func() { Host().ReduceAll(ReduceSum, [][]float32{x}, nil, 1) },
		"source":      func() { Host().ReduceAll(ReduceSum, [][]float32{x}, [][]float32{x, y}, 1) },
		"destination": func() { Host().ReduceAll(ReduceSum, [][]float32{x, y}, [][]float32{x, x}, 1) },
		"combine":     func() { Host().Combine(ReduceSum, x, x, y) },
		"reduction":   func() { Host().Combine(ReduceProd+1, x, x, x) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
	Host().ReduceAll(ReduceSum, nil, [][]float32{x}, 1) // nothing to write
}
