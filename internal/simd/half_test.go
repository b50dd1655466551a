package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
)

// oracle16 is a 16-bit format by its definition.
type oracle16 struct {
	format
	name                   string
	fractionBits, expBits  int
	quiet, nan, infinity   uint16
	to                     func(k *Kernels, dst []uint16, src []float32)
	from                   func(k *Kernels, dst []float32, src []uint16)
	combine                func(k *Kernels, op Reduction, dst, a, b []uint16)
	reduceAll              func(k *Kernels, op Reduction, dst, src [][]uint16, scale float32)
	keepsSignalingOnWidens bool
}

var oracles16 = []oracle16{
	{half, "half", 10, 5, 0x200, 0x7e00, 0x7c00, (*Kernels).ToHalf, (*Kernels).FromHalf, (*Kernels).CombineHalf, (*Kernels).ReduceAllHalf, false},
	{brain, "brain", 7, 8, 0x40, 0x7fc0, 0x7f80, (*Kernels).ToBrain, (*Kernels).FromBrain, (*Kernels).CombineBrain, (*Kernels).ReduceAllBrain, true},
}

// value is what h stands for; for infinity, the power of two that would follow
// the largest number.
func (o oracle16) value(h uint16) float64 {
	exponent, fraction := int(h&0x7fff)>>o.fractionBits, int(h)&(1<<o.fractionBits-1)
	bias := 1<<(o.expBits-1) - 1
	v := math.Ldexp(float64(fraction), 1-bias-o.fractionBits)
	if exponent > 0 {
		v = math.Ldexp(float64(fraction+1<<o.fractionBits), exponent-bias-o.fractionBits)
	}
	if h>>15 != 0 {
		return -v
	}
	return v
}

func (o oracle16) isNaN(h uint16) bool { return h&0x7fff > o.infinity }

// widened is the float32 that h is.
func (o oracle16) widened(h uint16) float32 {
	switch {
	case o.isNaN(h):
		sign, payload := uint32(h>>15)<<31, uint32(h&(1<<o.fractionBits-1))<<(23-o.fractionBits)
		if !o.keepsSignalingOnWidens {
			payload |= 1 << 22
		}
		return math.Float32frombits(sign | 0x7f800000 | payload)
	case h&0x7fff == o.infinity:
		return float32(math.Inf(1 - int(h>>15)*2))
	}
	v := float32(o.value(h))
	if v == 0 && h>>15 != 0 {
		return float32(math.Copysign(0, -1))
	}
	return v
}

// rounded searches for the two values that x lies between.
func (o oracle16) rounded(x float32) uint16 {
	sign, abs := uint16(math.Float32bits(x)>>16&0x8000), math.Abs(float64(x))
	switch {
	case x != x:
		return sign | o.infinity | o.quiet | uint16(math.Float32bits(x)&0x7fffff>>(23-o.fractionBits))
	case math.IsInf(abs, 1):
		return sign | o.infinity
	}
	above := uint16(sort.Search(int(o.infinity), func(h int) bool { return o.value(uint16(h)) >= abs }))
	if above == 0 || o.value(above) == abs {
		return sign | above
	}
	down, up := abs-o.value(above-1), o.value(above)-abs // exact
	if down < up || down == up && above%2 == 1 {
		above--
	}
	return sign | above
}

// All values of both formats become what they are, and themselves again.
func TestWidenAll(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		all, back := make([]uint16, 1<<16), make([]uint16, 1<<16)
		got, want := make([]float32, 1<<16), make([]float32, 1<<16)
		for _, o := range oracles16 {
			for i := range all {
				all[i], want[i] = uint16(i), o.widened(uint16(i))
			}
			o.from(k, got, all)
			sameBits(t, o.name, got, want)
			o.to(k, back, got)
			for i, h := range back {
				if want := all[i]; h != want && !(o.isNaN(want) && h == want|o.quiet) {
					t.Fatalf("%s: %#04x becomes %#04x", o.name, want, h)
				}
			}
		}
	})
}

// tricky are numbers near to and halfway between values of a format, NaNs,
// infinities, and random bits.
func (o oracle16) tricky(r *rand.Rand) []float32 {
	out := append([]float32{0, 65519.996, 65520, 65536, 1e-45, 0x1p-25, 0x1.000002p-25, 0x1p-24, 3.3895314e38, 3.3961775e38}, specials...)
	around := func(x float64) {
		v := float32(x)
		out = append(out, v, math.Nextafter32(v, 0), math.Nextafter32(v, float32(math.Inf(1))))
	}
	for range 3000 {
		h := uint16(r.IntN(int(o.infinity)))
		around(o.value(h))
		around((o.value(h) + o.value(h+1)) / 2)
		out = append(out, math.Float32frombits(r.Uint32()))
	}
	for _, h := range []uint16{0, 1, 2, 1<<o.fractionBits - 1, 1 << o.fractionBits, o.infinity - 2, o.infinity - 1} {
		around((o.value(h) + o.value(h+1)) / 2)
	}
	for _, v := range slices.Clone(out) {
		out = append(out, -v)
	}
	return out
}

func TestNarrowRoundsToNearestEven(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(81, 82))
		for _, o := range oracles16 {
			x := o.tricky(r)
			got := make([]uint16, len(x))
			o.to(k, got, x)
			for i, v := range x {
				if want := o.rounded(v); got[i] != want {
					t.Fatalf("%s: %v (%#x) becomes %#04x, want %#04x", o.name, v, math.Float32bits(v), got[i], want)
				}
			}
		}
	})
}

// Lengths of all kinds, at all kinds of places.
func TestConvertLengths(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(83, 84))
		for _, o := range oracles16 {
			for _, n := range lengths() {
				x, checkX := guarded(r, n)
				packed, checkPacked := guarded16(r, n)
				o.to(k, packed, x)
				want := make([]float32, n)
				for i, v := range x {
					if w := o.rounded(v); packed[i] != w {
						t.Fatalf("%s: element %d of %d: %v becomes %#04x, want %#04x", o.name, i, n, v, packed[i], w)
					}
					want[i] = o.widened(packed[i])
				}
				o.from(k, x, packed)
				sameBits(t, o.name, x, want)
				checkX(t, o.name)
				checkPacked(t, o.name)
			}
		}
	})
}

// guarded16 is guarded of 16-bit values, every other time at odd addresses of
// them; they are any, and none is a NaN or infinite.
func guarded16(r *rand.Rand, n int) (x []uint16, check func(*testing.T, string)) {
	const pattern, g = 0xabcd, 33
	all := make([]uint16, n+2*g)
	if r.IntN(2) == 0 {
		if end := faultAfter(n/2 + 1 + g); end != nil {
			bits := halves(end)
			all = bits[len(bits)-n-2*g:]
		}
	}
	for i := range all {
		all[i] = pattern
	}
	x = all[g : g+n : g+n]
	for i := range x {
		x[i] = uint16(r.Uint32()) & 0xbbff
	}
	return x, func(t *testing.T, what string) {
		t.Helper()
		for i, v := range all {
			if (i < g || i >= g+n) && v != pattern {
				t.Errorf("%s: written outside, at %d of %d", what, i-g, n)
				return
			}
		}
	}
}

func TestReduceAll16(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(85, 86))
		for _, o := range oracles16 {
			for _, n := range append(lengths(), callReduced/2/2-3, callReduced/2/3+77) {
				for _, op := range reductions {
					ns, nd := 1+r.IntN(5), 1+r.IntN(5)
					if n > 1000 {
						if ns, nd = 1+r.IntN(2), 1; op != reductions[n%4] {
							continue // the oracle is slow
						}
					}
					checkReduceAll16(t, k, o, r, op, n, ns, nd)
				}
			}
		}
	})
}

func checkReduceAll16(t *testing.T, k *Kernels, o oracle16, r *rand.Rand, op Reduction, n, ns, nd int) {
	src, dst := make([][]uint16, ns), make([][]uint16, nd)
	var guards []func(*testing.T, string)
	for i := range src {
		x, check := guarded16(r, n)
		for j := range x {
			if r.IntN(8) == 0 {
				x[j] = uint16(r.Uint32()) // NaNs and infinities, too
			}
		}
		src[i], guards = x, append(guards, check)
	}
	inPlace := r.IntN(2) == 0
	for j := range dst {
		if inPlace && j < ns {
			dst[j] = src[ns-1-j]
			continue
		}
		x, check := guarded16(r, n)
		dst[j], guards = x, append(guards, check)
	}
	scale := []float32{1, 1 / float32(ns), 0.3}[r.IntN(3)]
	want, column := make([]uint16, n), make([]float32, ns)
	for i := range want {
		for j, x := range src {
			column[j] = o.widened(x[i])
		}
		if want[i] = o.rounded(reduceAllNaive(op, column, scale)); o.isNaN(want[i]) {
			want[i] = o.nan
		}
	}
	o.reduceAll(k, op, dst, src, scale)
	at := fmt.Sprintf("%s: %v of %d to %d, scale %v, in place %v", o.name, op, ns, nd, scale, inPlace)
	for _, y := range dst {
		for i, v := range y {
			if v != want[i] {
				t.Fatalf("%s: element %d of %d is %#04x, want %#04x", at, i, n, v, want[i])
			}
		}
	}
	for _, check := range guards {
		check(t, at)
	}
}

// A combination is a reduction of two, also in place.
func TestCombine16(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(87, 88))
		for _, o := range oracles16 {
			for _, op := range reductions {
				for _, n := range []int{0, 1, 7, 8, 63, 200, 1000} {
					a, _ := guarded16(r, n)
					b, _ := guarded16(r, n)
					want := make([]uint16, n)
					for i := range want {
						want[i] = o.rounded(reduceAllNaive(op, []float32{o.widened(a[i]), o.widened(b[i])}, 1))
					}
					other := slices.Clone(a)
					if o.combine(k, op, a, a, b); !slices.Equal(a, want) {
						t.Fatalf("%s: %v of %d to the first: %#04x, want %#04x", o.name, op, n, a, want)
					}
					if o.combine(k, op, b, other, b); !slices.Equal(b, want) {
						t.Fatalf("%s: %v of %d to the second: %#04x, want %#04x", o.name, op, n, b, want)
					}
				}
			}
		}
	})
}

func TestReduce16AllocatesNothing(t *testing.T) {
	x, y, f := make([]uint16, 1003), make([]uint16, 1003), make([]float32, 1003)
	for _, k := range Levels() {
		for _, o := range oracles16 {
			work := func() {
				o.combine(k, ReduceMin, x, x, y)
				o.to(k, x, f)
				o.from(k, f, x)
			}
			if n := testing.AllocsPerRun(100, work); n != 0 {
				t.Errorf("%s, %s: %v allocations", k.Name(), o.name, n)
			}
		}
		if n := testing.AllocsPerRun(100, func() { k.ReduceAllHalf(ReduceSum, [][]uint16{x, y}, [][]uint16{x, y}, 0.5) }); n != 0 {
			t.Errorf("%s: %v allocations", k.Name(), n)
		}
	}
}

func TestConversionsWantOneLength(t *testing.T) {
	for _, o := range oracles16 {
		for name, f := range map[string]func(){
			"to":     func() { o.to(Host(), make([]uint16, 3), make([]float32, 4)) },
			"from":   func() { o.from(Host(), make([]float32, 4), make([]uint16, 3)) },
			"reduce": func() { o.combine(Host(), ReduceSum, make([]uint16, 4), make([]uint16, 3), make([]uint16, 4)) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s, %s: no panic", o.name, name)
					}
				}()
				f()
			}()
		}
	}
}
