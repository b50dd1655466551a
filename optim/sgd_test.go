package optim

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = 2*r.Float32() - 1
	}
	return x
}

func bound(t testing.TB, n int) *SGD {
	t.Helper()
	s := &SGD{LR: 0.1, Momentum: 0.9, WeightDecay: 0.01}
	if err := s.Bind(n); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSGDAgainstTwin(t *testing.T) {
	const n, scale = 67, 0.5
	r := rand.New(rand.NewPCG(1, 2))
	s, p := bound(t, n), random(r, n)
	twin, v := make([]float64, n), make([]float64, n)
	for i := range p {
		twin[i] = float64(p[i])
	}
	for range 5 {
		g := random(r, n)
		s.BeginStep()
		s.Update(0, p, g, scale)
		for i := range twin {
			v[i] = 0.9*v[i] + scale*float64(g[i]) + 0.01*twin[i]
			twin[i] -= 0.1 * v[i]
		}
	}
	for i := range p {
		if math.Abs(float64(p[i])-twin[i]) > 1e-5 || math.Abs(float64(s.State()[0].Data[i])-v[i]) > 1e-5 {
			t.Fatalf("value %d is %v with velocity %v, want %v and %v", i, p[i], s.State()[0].Data[i], twin[i], v[i])
		}
	}
}

// However the arena is cut and in whatever order, the bits are the same, and
// zero padding stays zero.
func TestSGDCuts(t *testing.T) {
	const n = 1000
	r := rand.New(rand.NewPCG(3, 4))
	a, b := bound(t, n), bound(t, n)
	p := random(r, n)
	clear(p[500:600])
	q := slices.Clone(p)
	cuts := [][2]int{{700, 1000}, {0, 1}, {33, 700}, {1, 33}, {5, 5}}
	for range 3 {
		g := random(r, n)
		clear(g[500:600])
		kept := slices.Clone(g)
		a.BeginStep()
		a.Update(0, p, g, 0.25)
		b.BeginStep()
		for _, c := range cuts {
			b.Update(c[0], q[c[0]:c[1]], g[c[0]:c[1]], 0.25)
		}
		if !slices.Equal(g, kept) {
			t.Error("the gradient was changed")
		}
	}
	if !slices.Equal(p, q) || !slices.Equal(a.State()[0].Data, b.State()[0].Data) {
		t.Error("the result depends on the cut")
	}
	if !slices.Equal(p[500:600], make([]float32, 100)) {
		t.Error("padding did not stay zero")
	}
}

func TestSGDValidate(t *testing.T) {
	good := []SGD{{LR: 0.1}, {LR: 1e-9, Momentum: 0.999, WeightDecay: 3}}
	for _, s := range good {
		if err := s.Validate(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	nan, inf := math.NaN(), math.Inf(1)
	for _, v := range []float64{nan, inf, -inf, -1} {
		s := SGD{LR: v, Momentum: v, WeightDecay: v}
		err := s.Bind(3)
		for _, want := range []string{"learning rate", "momentum", "weight decay"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v does not hold %q", v, err, want)
			}
		}
	}
	if err := (&SGD{LR: 0}).Validate(); err == nil {
		t.Error("learning rate 0 was accepted")
	}
	if err := (&SGD{LR: 1, Momentum: 1}).Validate(); err == nil {
		t.Error("momentum 1 was accepted")
	}
}

func TestSGDBind(t *testing.T) {
	s := bound(t, 4)
	s.Update(0, make([]float32, 4), []float32{1, 2, 3, 4}, 1)
	if err := s.Bind(4); err != nil || s.State()[0].Data[3] != 4 {
		t.Errorf("binding again: %v, velocity %v", err, s.State()[0].Data)
	}
	if err := s.Bind(5); err == nil {
		t.Error("bound to two lengths")
	}
	p, g := make([]float32, 4), make([]float32, 4)
	if n := testing.AllocsPerRun(10, func() { s.Update(0, p, g, 1) }); n != 0 {
		t.Errorf("an update makes %v allocations", n)
	}
}

func BenchmarkSGD(b *testing.B) {
	const n = 431_104
	s := bound(b, n)
	p, g := make([]float32, n), make([]float32, n)
	b.SetBytes(5 * 4 * n) // three read, two written
	for b.Loop() {
		s.Update(0, p, g, 1)
	}
}
