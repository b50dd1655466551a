package rowinit

import (
	"math"
	"strings"
	"testing"
)

// The initial weights are part of a seed's meaning and must not change.
func TestGolden(t *testing.T) {
	x := make([]float32, 3)
	Uniform(0.05)(x, Row(Table(7, "embedding"), 12345))
	want := [3]uint32{0xbcbe3afd, 0xbd27c34d, 0x3cb32873}
	for i, w := range want {
		if got := math.Float32bits(x[i]); got != w {
			t.Errorf("value %d is %#x (%v), want %#x", i, got, x[i], w)
		}
	}
	Constant(2.5)(x, 1)
	if x[0] != 2.5 || x[2] != 2.5 {
		t.Errorf("constant: %v", x)
	}
}

// Rows of neighbouring keys, seeds and names are unlike each other, and fill the range evenly.
func TestSpread(t *testing.T) {
	const n, limit = 40000, 2
	seen := map[uint64]bool{}
	var sum, squares float64
	for key := range uint64(n) {
		for _, table := range []uint64{Table(1, "a"), Table(2, "a"), Table(1, "b")} {
			s := Row(table, key)
			if seen[s] {
				t.Fatalf("key %d has the stream of another", key)
			}
			seen[s] = true
		}
		var x [2]float32
		Uniform(limit)(x[:], Row(Table(1, "a"), key))
		for _, v := range x {
			if v < -limit || v >= limit {
				t.Fatalf("key %d begins with %v", key, v)
			}
			sum += float64(v)
			squares += float64(v) * float64(v)
		}
	}
	// a mean of 80,000 draws of variance limit^2/3
	if mean := sum / (2 * n); math.Abs(mean) > 5*limit/math.Sqrt(3*2*n) {
		t.Errorf("mean %v", mean)
	}
	if v := squares / (2 * n); math.Abs(v-limit*limit/3.0) > 0.03 {
		t.Errorf("variance %v, want %v", v, limit*limit/3.0)
	}
}

func TestSpec(t *testing.T) {
	for _, c := range []struct {
		spec  Spec
		first float32
		fault string
	}{
		{Spec{}, 0, ""}, {Spec{Name: "zeros"}, 0, ""}, {Spec{"constant", -2}, -2, ""},
		{Spec{"zeros", 1}, 0, "zeros with a value of 1"}, {Spec{"uniform", -1}, 0, "uniform up to -1"},
		{Spec{"constant", math.NaN()}, 0, "want a finite"}, {Spec{"uniform", 1e300}, 0, "want a finite"}, {Spec{"normal", 1}, 0, "use zeros, constant or uniform"},
	} {
		init, err := c.spec.Init()
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%+v: %v, want %q", c.spec, err, c.fault)
			}
			continue
		}
		x := []float32{9}
		if err == nil {
			init(x, 3)
		}
		if err != nil || x[0] != c.first || math.Signbit(float64(x[0])) != (c.first < 0) {
			t.Errorf("%+v: %v, %v", c.spec, x, err)
		}
	}
	init, err := Spec{"uniform", 0.5}.Init()
	a, b := make([]float32, 4), make([]float32, 4)
	if init(a, 7); err != nil || a[0] == a[1] {
		t.Errorf("%v, %v", a, err)
	}
	if Uniform(0.5)(b, 7); a[3] != b[3] {
		t.Errorf("%v, want %v", a, b)
	}
}
