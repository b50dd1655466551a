package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

var windows = []Patches{
	{Channels: 1, Height: 28, Width: 28, KernelHeight: 5, KernelWidth: 5},
	{Channels: 6, Height: 12, Width: 12, KernelHeight: 5, KernelWidth: 5},
	{Channels: 5, Height: 7, Width: 40, KernelHeight: 3, KernelWidth: 2},
	{Channels: 3, Height: 4, Width: 4, KernelHeight: 4, KernelWidth: 4},
	{Channels: 2, Height: 5, Width: 37, KernelHeight: 1, KernelWidth: 1},
	{Channels: 2, Height: 9, Width: 8, KernelHeight: 3, KernelWidth: 3, Pad: 1},
	{Channels: 3, Height: 11, Width: 9, KernelHeight: 3, KernelWidth: 2, Stride: 2},
	{Channels: 1, Height: 6, Width: 7, KernelHeight: 3, KernelWidth: 3, Stride: 3, Pad: 2},
}

// matrix of patches by the definition.
func patchesNaive(p Patches, image []float32) []float32 {
	var out []float32
	for c := range p.Channels {
		for ky := range p.KernelHeight {
			for kx := range p.KernelWidth {
				for y := range p.OutHeight() {
					for x := range p.OutWidth() {
						iy, ix := y*max(1, p.Stride)+ky-p.Pad, x*max(1, p.Stride)+kx-p.Pad
						v := float32(0)
						if iy >= 0 && iy < p.Height && ix >= 0 && ix < p.Width {
							v = image[(c*p.Height+iy)*p.Width+ix]
						}
						out = append(out, v)
					}
				}
			}
		}
	}
	return out
}

func TestGemmPatches(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(7, 8))
		var s Scratch
		for _, p := range windows {
			for _, transposed := range []bool{false, true} {
				testGemmPatches(t, k, &s, r, p, transposed)
			}
		}
	})
}

func testGemmPatches(t *testing.T, k *Kernels, s *Scratch, r *rand.Rand, p Patches, transposed bool) {
	const m = 17
	n, kk := p.Cols(), p.Rows()
	if transposed {
		n, kk = kk, n
	}
	a := random(r, m*kk)
	image, check := guarded(r, p.ImageSize())
	got, checkC := guarded(r, m*n)
	want := append([]float32(nil), got...)
	gemmNaive(false, transposed, m, n, kk, a, kk, patchesNaive(p, image), p.Cols(), true, want, n)
	if transposed {
		k.GemmPatchesT(s, m, a, kk, p, image, true, got, n)
	} else {
		k.GemmPatches(s, m, a, kk, p, image, true, got, n, Epilogue{})
	}
	check(t, "image")
	checkC(t, "C")
	for i := range want {
		if !(math.Abs(float64(got[i]-want[i])) < 1e-4) {
			t.Fatalf("%+v transposed=%v: C[%d] = %v, want %v", p, transposed, i, got[i], want[i])
		}
	}
}

func TestAddPatches(t *testing.T) {
	for _, p := range windows {
		for _, pad := range []int{0, 3} {
			r := rand.New(rand.NewPCG(9, 10))
			ld := p.Cols() + pad
			cols, _ := guarded(r, stored(p.Rows(), p.Cols(), ld))
			start := random(r, p.ImageSize())
			want := append([]float32(nil), start...)
			addPatchesSlow(want, p, cols, ld)
			for _, k := range Levels() {
				var s Scratch
				for range 2 { // the second time with the plan at hand
					got, check := guarded(r, p.ImageSize())
					copy(got, start)
					k.AddPatches(&s, got, p, cols, ld)
					equalBits(t, fmt.Sprintf("%s %+v", k.Name(), p), got, want)
					check(t, "image")
				}
			}
		}
	}
}

// The two maps of a convolution's backward pass are transposes of each other:
// <patches(x), y> = <x, AddPatches(y)>.
func TestAddPatchesIsTheTranspose(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for _, p := range windows {
		x, y := random(r, p.ImageSize()), random(r, p.Rows()*p.Cols())
		back := make([]float32, len(x))
		Host().AddPatches(new(Scratch), back, p, y, p.Cols())
		var left, right float64
		for i, v := range patchesNaive(p, x) {
			left += float64(v) * float64(y[i])
		}
		for i, v := range back {
			right += float64(v) * float64(x[i])
		}
		if math.Abs(left-right) > 1e-3 {
			t.Errorf("%+v: %v and %v", p, left, right)
		}
	}
}

func TestPatchesValidate(t *testing.T) {
	for _, p := range windows {
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
	}
	for _, p := range []Patches{{}, {Channels: 1, Height: 3, Width: 3, KernelHeight: 4, KernelWidth: 1}, {Channels: 1, Height: 3, Width: 3, KernelHeight: 1, KernelWidth: 1, Pad: -1}} {
		if p.Validate() == nil {
			t.Errorf("%+v is accepted", p)
		}
	}
}
