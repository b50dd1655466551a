package simd

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

var poolShapes = [][3]int{
	{1, 2, 2}, {3, 24, 24}, {4, 8, 8}, {2, 7, 9}, {1, 3, 33}, {2, 6, 70}, {3, 2, 31}, {5, 1, 4}, {2, 4, 1}, {0, 4, 4}, {40, 28, 6}, {1, 1200, 4},
}

// poolNaive is one window by the definition.
func poolNaive(window [4]float32, relu bool) (float32, uint8) {
	best := 0
	for i, v := range window {
		if nan := window[best] != window[best]; !nan && (v > window[best] || v != v) {
			best = i
		}
	}
	v := window[best]
	switch {
	case !relu:
		return v, uint8(best)
	case v > 0:
		return v, uint8(best)
	case v < 0:
		return 0, 4
	}
	return v, 4 // zero or NaN
}

func poolInput(r *rand.Rand, n int) ([]float32, func(*testing.T, string)) {
	x, check := guarded(r, n)
	for i := range x {
		switch r.IntN(8) {
		case 0:
			x[i] = specials[r.IntN(len(specials))]
		case 1:
			x[i] = float32(r.IntN(3)) - 1 // ties
		}
	}
	return x, check
}

func TestMaxPool2(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(17, 18))
		for _, s := range poolShapes {
			for _, relu := range []bool{false, true} {
				testPool(t, k, r, s[0], s[1], s[2], relu)
			}
		}
	})
}

func testPool(t *testing.T, k *Kernels, r *rand.Rand, planes, h, w int, relu bool) {
	what := fmt.Sprintf("%dx%dx%d relu=%v", planes, h, w, relu)
	oh, ow := h/2, w/2
	x, checkX := poolInput(r, planes*h*w)
	y, checkY := guarded(r, planes*oh*ow)
	dx, checkDX := guarded(r, planes*h*w)
	dy := random(r, len(y))
	args := make([]uint8, len(y)+64)
	for i := range args {
		args[i] = 99
	}
	arg := args[32 : 32+len(y)]
	k.MaxPool2(y, arg, x, planes, h, w, relu)
	k.MaxPool2Grad(dx, dy, arg, planes, h, w)

	want, wantArg, wantDX := make([]float32, len(y)), make([]uint8, len(y)), make([]float32, len(x))
	for i := range want {
		p, row, col := i/(oh*ow), i/ow%oh, i%ow
		at := (p*h+2*row)*w + 2*col
		where := [4]int{at, at + 1, at + w, at + w + 1}
		want[i], wantArg[i] = poolNaive([4]float32{x[where[0]], x[where[1]], x[where[2]], x[where[3]]}, relu)
		if arg[i] != wantArg[i] {
			t.Fatalf("%s: arg[%d] = %d, want %d", what, i, arg[i], wantArg[i])
		}
		if arg[i] < 4 {
			wantDX[where[arg[i]]] = dy[i]
		}
	}
	sameValues(t, what, y, want)
	sameValues(t, what+" gradient", dx, wantDX)
	checkX(t, what)
	checkY(t, what)
	checkDX(t, what)
	for i := range 32 {
		if args[i] != 99 || args[32+len(y)+i] != 99 {
			t.Fatalf("%s: positions written outside", what)
		}
	}
}
