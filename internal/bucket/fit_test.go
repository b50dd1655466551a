package bucket

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Costs of the fitted form are recovered, for all combinations of terms.
func TestFitFindsWhatIsThere(t *testing.T) {
	for _, want := range []Curve{
		{Fixed: 1e-5}, {PerValue: 2e-9}, {PerLog: 1e-10}, {1e-5, 2e-9, 0}, {1e-6, 0, 3e-10}, {0, 1e-9, 1e-10}, {1e-5, 2e-9, 3e-10},
	} {
		var samples []Sample
		for n := 16; n <= 16<<20; n *= 4 {
			samples = append(samples, Sample{float64(n), want.At(n)})
		}
		got, err := FitCurve(samples)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{16, 1000, 1 << 20, 1 << 24} {
			if g, w := got.At(n), want.At(n); math.Abs(g-w) > 1e-6*w {
				t.Errorf("%+v is fitted as %+v: %v at %d, want %v", want, got, g, n, w)
			}
		}
		if want.PerLog == 0 {
			fixed, per, err := FitLine(samples)
			if err != nil || math.Abs(fixed-want.Fixed) > 1e-6*want.At(16) || math.Abs(per-want.PerValue) > 1e-6*want.At(1<<20)/(1<<20) {
				t.Errorf("%+v is fitted as %v + %v x, %v", want, fixed, per, err)
			}
		}
	}
}

// With noise no term is negative, and no neighbour fits better.
func TestFitIsALeastError(t *testing.T) {
	rng := rand.New(rand.NewPCG(19, 20))
	for range 300 {
		var samples []Sample
		a, b := rng.Float64(), rng.Float64()
		for range 2 + rng.IntN(10) {
			x := math.Exp2(rng.Float64() * 12)
			samples = append(samples, Sample{x, (a + b*x/50) * (0.5 + rng.Float64())})
		}
		c, err := fit(samples, 3)
		if err != nil {
			t.Fatal(err)
		}
		least := relativeError(samples, c)
		for i := range c {
			if c[i] < 0 {
				t.Fatalf("fitted %v", c)
			}
			for _, f := range []float64{-1e-3, 1e-3} {
				d := c
				d[i] = max(0, d[i]*(1+f)+f*1e-3)
				if e := relativeError(samples, d); e < least*(1-1e-6)-1e-9 {
					t.Fatalf("%v has error %v, fitted %v has %v", d, e, c, least)
				}
			}
		}
	}
}

func TestFitRefuses(t *testing.T) {
	for _, s := range [][]Sample{nil, {{0, 1}}, {{1, 0}}, {{1, -1}}, {{1, math.NaN()}}, {{math.Inf(1), 1}}, {{4, 1}, {8, math.Inf(1)}}} {
		if _, err := FitCurve(s); err == nil {
			t.Errorf("%v was fitted", s)
		}
		if _, _, err := FitLine(s); err == nil {
			t.Errorf("%v was fitted", s)
		}
	}
	if c, err := FitCurve([]Sample{{100, 3}}); err != nil || math.Abs(c.At(100)-3) > 1e-9 {
		t.Errorf("one sample: %+v, %v", c, err)
	}
}
