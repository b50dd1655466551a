package simd

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// int8Naive stores blocks as their description says, in float64 where that is exact.
func int8Naive(x []float32) (out []byte) {
	for ; len(x) > 0; x = x[min(256, len(x)):] {
		block := x[:min(256, len(x))]
		largest := float32(0)
		for _, v := range block {
			largest = max(largest, float32(math.Abs(float64(v))))
		}
		scale := float32(0)
		if largest >= 1e-30 {
			scale = math.Float32frombits(math.Float32bits(largest/127) >> 8 << 8)
		}
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(scale))
		for _, v := range block {
			q := 0.0
			if scale > 0 {
				q = math.RoundToEven(float64(v * (1 / scale)))
			}
			out = append(out, byte(int8(q)))
		}
	}
	return out
}

func TestInt8Blocks(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(97, 98))
		for _, n := range []int{0, 1, 255, 256, 257, 512, 1000, callFloats + 300} {
			x, check := guarded(r, n)
			sown(r, x)
			for i, v := range x {
				if v != v || math.IsInf(float64(v), 0) {
					x[i] = -3
				}
				if i/256%3 == 2 { // a small block
					x[i] *= 1e-31
				}
			}
			want := int8Naive(x)
			got := make([]byte, len(want)+1)
			got[len(want)] = 99
			if at := k.ToInt8(got, x); at != n || !slices.Equal(got[:len(want)], want) || got[len(want)] != 99 {
				t.Fatalf("%d values: stored up to %d otherwise than they should", n, at)
			}
			back, checkBack := guarded(r, n)
			if at := k.FromInt8(back, want); at != n {
				t.Fatalf("%d values: read up to %d", n, at)
			}
			for i, v := range back {
				at := i + 4*(i/256+1)
				scale := math.Float32frombits(binary.LittleEndian.Uint32(want[i/256*260:]))
				if v != float32(int8(want[at]))*scale {
					t.Fatalf("%d of %d is read as %v", i, n, v)
				}
			}
			check(t, "ToInt8")
			checkBack(t, "FromInt8")
			for _, at := range []int{0, n / 2, n - 1} {
				checkInt8Stops(t, k, x, want, at)
			}
		}
	})
}

// What cannot be stored, or read, stops at its block.
func checkInt8Stops(t *testing.T, k *Kernels, x []float32, stored []byte, at int) {
	t.Helper()
	if len(x) == 0 {
		return
	}
	begin, kept := at/256*256, x[at]
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
		x[at] = bad
		if got := k.ToInt8(make([]byte, len(stored)), x); got != begin {
			t.Errorf("%v at %d of %d: stored up to %d", bad, at, len(x), got)
		}
	}
	x[at] = kept
	scale := stored[begin/256*260:][:4]
	was := slices.Clone(scale)
	for _, bits := range []uint32{1 << 31, 0x7fc00000, 0x7f800000, math.Float32bits(math.MaxFloat32/127) + 1} {
		binary.LittleEndian.PutUint32(scale, bits)
		if got := k.FromInt8(make([]float32, len(x)), stored); got != begin {
			t.Errorf("scale %#x at %d of %d: read up to %d", bits, at, len(x), got)
		}
	}
	copy(scale, was)
}
