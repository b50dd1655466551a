package compress

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// quantiseNaive is what others decode, from the codes' definitions in float64.
func quantiseNaive(q Quantiser, x []float32) []float32 {
	out := make([]float32, len(x))
	switch q.(type) {
	case FP32:
		copy(out, x)
	case FP16:
		for i, v := range x {
			out[i] = nearest(v, 10, -14)
		}
	case BF16:
		for i, v := range x {
			out[i] = nearest(v, 7, -126)
		}
	case Int8, Sign:
		for at := 0; at < len(x); at += BlockLen {
			block := x[at:min(at+BlockLen, len(x))]
			most, sum := 0.0, 0.0
			var lanes [16]float64 // the order of the sum
			for i, v := range block {
				most = max(most, math.Abs(float64(v)))
				lanes[i%16] += math.Abs(float64(v))
			}
			for half := 8; half > 0; half /= 2 {
				for i := range half {
					lanes[i] += lanes[i+half]
				}
			}
			sum = lanes[0]
			scale := math.Float32frombits(math.Float32bits(float32(most)/127) >> 8 << 8)
			for i, v := range block {
				if q == (Quantiser)(Sign{}) {
					out[at+i] = float32(math.Copysign(float64(float32(sum/float64(len(block)))), float64(v)))
				} else if most >= 1e-30 {
					out[at+i] = float32(math.RoundToEven(float64(v*(1/scale)))) * scale
				}
			}
		}
	}
	return out
}

// nearest rounds to so many bits of fraction, exponents from lowest on.
func nearest(x float32, bits, lowest int) float32 {
	if x == 0 {
		return x
	}
	_, exp := math.Frexp(float64(x))
	unit := math.Ldexp(1, max(exp-1, lowest)-bits)
	return float32(math.RoundToEven(float64(x)/unit) * unit)
}

func finite(x []float32) {
	for i, v := range x {
		if math.IsInf(float64(v), 0) {
			x[i] = 60000
		}
	}
}

func TestQuantisers(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	for _, q := range quantisers {
		for _, n := range []int{1, 2, 255, 256, 257, 3000} {
			for _, v := range vectors {
				x := zeros(n)
				v.fill(r, x)
				finite(x)
				if v.name == "heavy tails" && q == (Quantiser)(FP16{}) {
					for i := range x {
						x[i] = max(-65519, min(65519, x[i]))
					}
				}
				buf, got := make([]byte, q.Size(n)), zeros(n)
				if err := q.Encode(buf, x); err != nil {
					t.Fatalf("%s, %s: %v", q.Name(), v.name, err)
				}
				if err := q.Decode(got, buf); err != nil {
					t.Fatal(err)
				}
				for i, want := range quantiseNaive(q, x) {
					if got[i] != want {
						t.Fatalf("%s, %s: %v of %d at %d is %v, want %v", q.Name(), v.name, x[i], n, i, got[i], want)
					}
				}
			}
		}
	}
}

// Extremes: the smallest and the largest block of int8 stay finite and are near.
func TestInt8Extremes(t *testing.T) {
	for _, most := range []float32{math.MaxFloat32, 1e38, 1, 1.0000001e-30, 9e-31, math.SmallestNonzeroFloat32} {
		x := []float32{most, -most, most / 2, most / 127, 0}
		buf, got := make([]byte, Int8{}.Size(len(x))), zeros(len(x))
		if err := (Int8{}).Encode(buf, x); err != nil {
			t.Fatal(err)
		}
		if err := (Int8{}).Decode(got, buf); err != nil {
			t.Fatal(err)
		}
		for i, v := range x {
			if err := math.Abs(float64(got[i]) - float64(v)); err > float64(most)/253 && most >= 1e-30 || math.Abs(float64(got[i])) > math.Abs(float64(v))+float64(most)/253 {
				t.Errorf("of %v: %v became %v", most, v, got[i])
			}
		}
	}
}

// What a code has no room for is an error with value and place.
func TestCodesRefuse(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		q     Quantiser
		bad   float32
		fits  float32
		after string
	}{
		{FP32{}, nan, inf, "NaN"}, {FP16{}, nan, 65519, "NaN"}, {BF16{}, nan, 3.3e38, "NaN"}, {Int8{}, nan, 3e38, "NaN"}, {Sign{}, nan, 3e38, "NaN"},
		{FP16{}, 65520, -65519, "fp16"}, {FP16{}, -inf, 1, "fp16"}, {BF16{}, math.MaxFloat32, 3.3e38, "bf16"},
		{Int8{}, inf, math.MaxFloat32, "int8"}, {Sign{}, -inf, math.MaxFloat32, "sign"},
	} {
		x := zeros(700)
		x[600] = c.fits
		buf := make([]byte, c.q.Size(len(x)))
		if err := c.q.Encode(buf, x); err != nil {
			t.Errorf("%s of %v: %v", c.q.Name(), c.fits, err)
		}
		x[601] = c.bad
		err := c.q.Encode(buf, x)
		var e *ValueError
		if !errors.As(err, &e) || e.Index != 601 || !strings.Contains(err.Error(), c.after) || e.Value == e.Value && e.Value != c.bad {
			t.Errorf("%s of %v: %v", c.q.Name(), c.bad, err)
		}
	}
}
