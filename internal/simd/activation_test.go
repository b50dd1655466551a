package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// The curves by their definitions, in float64.
var curves = []struct {
	name  string
	level func(k *Kernels, dst, x []float32)
	one   func(x float32) float32
	exact func(x float64) float64
	ulps  float64 // how far the result may be from the exact one
	loss  float64 // relative, times |x|³: the error that rounding an argument makes
	tiny  float64 // results below may be 0
}{
	{"Exp", (*Kernels).Exp, exp, math.Exp, 1.5, 0, 0x1p-126},
	{"Sigmoid", (*Kernels).Sigmoid, sigmoid, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }, 3, 0, 0x1p-126},
	{"Tanh", (*Kernels).Tanh, tanh, math.Tanh, 3, 0, 0x1p-126},
	{"GELU", (*Kernels).GELU, gelu, geluExact, 4, 2e-7, 1e-36},
}

func geluExact(x float64) float64 {
	return x / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) // (1+tanh u)/2 is sigmoid 2u
}

// spread is n values: small and large of both signs, and the edges.
func spread(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		switch i % 4 {
		case 0:
			x[i] = r.Float32()*2 - 1
		case 1:
			x[i] = r.Float32()*200 - 100
		case 2:
			x[i] = float32(r.NormFloat64() * 5)
		case 3:
			x[i] = math.Float32frombits(r.Uint32())
		}
	}
	copy(x, specials)
	for i, v := range []float32{expLow, expHigh, 0.34657359, -0.34657359, tanhMax, 88, -88, 103.9, -103.9} {
		if at := len(specials) + 3*i; at+3 <= n {
			x[at], x[at+1], x[at+2] = v, math.Nextafter32(v, 1000), math.Nextafter32(v, -1000)
		}
	}
	return x
}

// Every level gives the bits of the portable functions.
func TestCurves(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		for _, c := range curves {
			r := rand.New(rand.NewPCG(31, 32))
			for _, n := range append(lengths(), 1<<18) {
				x, want := spread(r, n), make([]float32, n)
				for i, v := range x {
					want[i] = c.one(v)
				}
				got, check := guarded(r, n)
				c.level(k, got, x)
				sameValues(t, fmt.Sprintf("%s n=%d", c.name, n), got, want)
				check(t, c.name)
				c.level(k, x, x)
				sameValues(t, fmt.Sprintf("%s n=%d in place", c.name, n), x, want)
			}
		}
	})
}

func TestCurvesAreAccurate(t *testing.T) {
	for _, c := range curves {
		worst, at := 0.0, float32(0)
		for _, x := range spread(rand.New(rand.NewPCG(33, 34)), 1<<20) {
			got, exact := float64(c.one(x)), c.exact(float64(x))
			if math.Abs(exact) < c.tiny {
				if math.Abs(got) > 1.00001*c.tiny {
					t.Fatalf("%s(%v) = %v, want 0", c.name, x, got)
				}
				continue
			}
			if rounded := float64(float32(exact)); got == rounded || got != got && exact != exact {
				continue
			}
			_, e := math.Frexp(exact)
			off := math.Abs(got - exact)
			off -= c.loss * min(math.Pow(math.Abs(float64(x)), 3), 1e4) * math.Abs(exact)
			if off /= math.Ldexp(1, e-24); !(off <= worst) {
				worst, at = off, x
			}
		}
		t.Logf("%s: %.2f units in the last place at %v", c.name, worst, at)
		if !(worst <= c.ulps) {
			t.Errorf("%s(%v) is %v units in the last place off, want %v at most", c.name, at, worst, c.ulps)
		}
	}
}

var slopes = []struct {
	name  string
	level func(k *Kernels, dx, dy, y []float32)
	one   func(y float32) float32
	curve func(x float64) float64
	input func(x float64) float64 // what the gradient is given for x
}{
	{"SigmoidGrad", (*Kernels).SigmoidGrad, func(y float32) float32 { return y * (1 - y) }, curves[1].exact, curves[1].exact},
	{"TanhGrad", (*Kernels).TanhGrad, func(y float32) float32 { return 1 - float32(y*y) }, math.Tanh, math.Tanh},
	{"GELUGrad", (*Kernels).GELUGrad, geluSlope, geluExact, func(x float64) float64 { return x }},
}

func TestSlopes(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		for _, s := range slopes {
			r := rand.New(rand.NewPCG(35, 36))
			for _, n := range lengths() {
				y, dy, want := spread(r, n), random(r, n), make([]float32, n)
				for i, v := range y {
					want[i] = float32(s.one(v) * dy[i])
				}
				got, check := guarded(r, n)
				s.level(k, got, dy, y)
				sameValues(t, fmt.Sprintf("%s n=%d", s.name, n), got, want)
				check(t, s.name)
				s.level(k, dy, dy, y)
				sameValues(t, fmt.Sprintf("%s n=%d in place", s.name, n), dy, want)
			}
		}
	})
	for _, s := range slopes {
		for x := -8.0; x < 8; x += 0.0371 {
			slope := (s.curve(x+1e-4) - s.curve(x-1e-4)) / 2e-4
			if got := float64(s.one(float32(s.input(x)))); math.Abs(got-slope) > 4e-6 {
				t.Errorf("%s at %v is %v, want %v", s.name, x, got, slope)
			}
		}
	}
}

func TestSoftmax(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(37, 38))
		for _, n := range append(lengths()[1:], 50_000) {
			x, _ := guarded(r, n)
			for i := range x {
				x[i] *= 20
			}
			p, check := guarded(r, n)
			most, sum := k.Softmax(p, x)
			check(t, "Softmax")
			wantMost, wantSum := math.Inf(-1), 0.0
			for _, v := range x {
				wantMost = max(wantMost, float64(v))
			}
			for _, v := range x {
				wantSum += math.Exp(float64(v) - wantMost)
			}
			if float64(most) != wantMost || math.Abs(sum-wantSum) > 1e-6*wantSum {
				t.Fatalf("n=%d: largest %v, sum %v; want %v, %v", n, most, sum, wantMost, wantSum)
			}
			if _, same := portable.Softmax(make([]float32, n), x); same != sum {
				t.Fatalf("n=%d: sum %v, the portable level has %v", n, sum, same)
			}
			for i, v := range x {
				if want := math.Exp(float64(v)-wantMost) / wantSum; math.Abs(float64(p[i])-want) > 1e-6*(1+wantMost-float64(v))*want+1e-37 {
					t.Fatalf("n=%d: p[%d] = %v, want %v", n, i, p[i], want)
				}
				if want := exp(v-most) * float32(1/sum); p[i] != want {
					t.Fatalf("n=%d: p[%d] = %v, element by element it is %v", n, i, p[i], want)
				}
			}
		}
	})
}

func TestMaxPassesOverNaN(t *testing.T) {
	nan := float32(math.NaN())
	eachLevel(t, func(t *testing.T, k *Kernels) {
		for n := range 100 {
			x := make([]float32, n)
			for i := range x {
				x[i] = nan
			}
			want := float32(math.Inf(-1))
			if n > 0 {
				x[n*7%n], want = -3, -3
				x[n/2] = -3
			}
			if got := k.Max(x); got != want {
				t.Fatalf("n=%d: %v, want %v", n, got, want)
			}
			if sum := k.ExpSum(x, 0); n > 2 && sum == sum {
				t.Fatalf("n=%d: the sum of exponentials of NaN is a number", n)
			}
		}
	})
}
