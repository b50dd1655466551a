package simd

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// ascending are indices whose gaps have up to width bits, from before on.
func ascending(r *rand.Rand, n, width int, before int32) []int32 {
	out := make([]int32, n)
	for i := range out {
		before += 1 + int32(r.Uint32N(1<<width))
		out[i] = before
	}
	return out
}

// packNaive writes bit after bit.
func packNaive(index []int32, before int32, width int) []byte {
	out := make([]byte, (len(index)*width+7)/8)
	for i, at := range index {
		for b := range width {
			out[(i*width+b)/8] |= byte(uint32(at-before-1)>>b&1) << ((i*width + b) % 8)
		}
		before = at
	}
	return out
}

func TestGaps(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(91, 92))
		for width := range 32 {
			for _, n := range []int{0, 1, 7, 8, 9, 16, 31, 127, 128, 131} {
				checkGaps(t, k, r, min(n, 1<<31>>width), width)
			}
		}
		checkGaps(t, k, r, callFloats+19, 3)
	})
}

func checkGaps(t *testing.T, k *Kernels, r *rand.Rand, n, width int) {
	t.Helper()
	before := int32(r.IntN(3)) - 1
	if n == 1 && width == 31 {
		before = -1
	}
	index := ascending(r, n, width, before)
	what := fmt.Sprintf("%d gaps of %d bits", n, width)
	all := uint32(0)
	for i, at := range index {
		all |= uint32(at - append([]int32{before}, index...)[i] - 1)
		if i > 200 {
			break
		}
	}
	if got := k.GapBits(index[:min(n, 201)], before); got != all {
		t.Fatalf("%s: joined %#x, want %#x", what, got, all)
	}
	want := packNaive(index, before, width)
	for _, tail := range []int{0, 1, 8, 40} { // with and without room behind
		packed := make([]byte, len(want)+tail)
		k.PackGaps(packed, index, before, width)
		if !slices.Equal(packed[:len(want)], want) {
			t.Fatalf("%s: packed as %x, want %x", what, packed[:len(want)], want)
		}
		for i := range packed[len(want):] {
			packed[len(want)+i] = 0xff // what is behind changes nothing
		}
		got := make([]int32, n+1)
		got[n] = 77
		most := k.UnpackGaps(got[:n], packed, before, width)
		if !slices.Equal(got[:n], index) || got[n] != 77 {
			t.Fatalf("%s: unpacked as %v, want %v", what, got, index)
		}
		if n > 0 && most != uint32(index[n-1]) {
			t.Fatalf("%s: the largest is %d, want %d", what, most, index[n-1])
		}
	}
}

// An index beyond int32 is seen, wherever it is.
func TestUnpackGapsSeesOverflow(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		for width := 1; width < 32; width++ {
			src := make([]byte, 128*4+16)
			for i := range src {
				src[i] = 0xff
			}
			index := make([]int32, 128)
			before := int32(1<<31 - 2)
			if most := k.UnpackGaps(index, src, before, width); most < 1<<31 {
				t.Errorf("gaps of %d bits behind %d: the largest is %d", width, before, most)
			}
		}
	})
}

func TestFromBitmap(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(93, 94))
		for _, size := range []int{0, 1, 7, 8, 9, 63, 64, 65, 200, callFloats/8 + 21} {
			for _, all := range []byte{0, 0x11, 0x55, 0xff} {
				bitmap := make([]byte, size)
				var want []int32
				for i := range bitmap {
					bitmap[i] = byte(r.Uint32()) & all
					for b := bitmap[i]; b != 0; b &= b - 1 {
						want = append(want, int32(8*i+bits.TrailingZeros8(b)))
					}
				}
				got := make([]int32, len(want)+1)
				got[len(want)] = 77
				if n := k.FromBitmap(got[:len(want)], bitmap); n != len(want) || !slices.Equal(got[:n], want) || got[n] != 77 {
					t.Fatalf("%d bytes: %v, want %v", size, got, want)
				}
			}
		}
	})
}

func TestSieve(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(95, 96))
		for _, n := range lengths() {
			for _, bound := range []float32{0, 0.3, 0.9, 4} {
				checkSieve(t, k, r, n, Magnitude(bound))
			}
		}
	})
}

func checkSieve(t *testing.T, k *Kernels, r *rand.Rand, n int, bound uint32) {
	t.Helper()
	x, checkX := guarded(r, n)
	sown(r, x)
	var e, high, low Entries
	least := ^uint32(0)
	for i, v := range x {
		e.Index, e.Value = append(e.Index, int32(3*i)), append(e.Value, v)
		to := &low
		if Magnitude(v) >= bound {
			to, least = &high, min(least, Magnitude(v))
		}
		to.Index, to.Value = append(to.Index, int32(3*i)), append(to.Value, v)
	}
	what := fmt.Sprintf("%d values, bound %#x", n, bound)
	if got := k.MinAtLeast(x, bound); got != least {
		t.Fatalf("%s: the smallest is %#x, want %#x", what, got, least)
	}
	below, checkBelow := guarded(r, n)
	got := k.Below(below, x, bound)
	sameBits(t, what+": below", below[:got], low.Value)
	rest := Entries{make([]int32, n), make([]float32, n)}
	for _, shift := range []int{0, min(n, 5)} { // in place, and to the front
		all := Entries{append(make([]int32, shift), e.Index...), append(make([]float32, shift), e.Value...)}
		a, b := k.Separate(all, rest, Entries{all.Index[shift:], all.Value[shift:]}, bound)
		if !slices.Equal(all.Index[:a], high.Index) || !slices.Equal(rest.Index[:b], low.Index) {
			t.Fatalf("%s: %v and %v, want %v and %v", what, all.Index[:a], rest.Index[:b], high.Index, low.Index)
		}
		sameBits(t, what+": high", all.Value[:a], high.Value)
		sameBits(t, what+": low", rest.Value[:b], low.Value)
	}
	checkX(t, what)
	checkBelow(t, what)
}
