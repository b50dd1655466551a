package zipf

import (
	"math"
	"math/rand/v2"
	"testing"
)

func (l Law) next(r *rand.Rand) uint64 {
	for {
		if v, ok := l.Draw(r.Float64()); ok {
			return v
		}
	}
}

// The counts of draws are those of the law: chi-square over all values, those too rare to
// count on their own put together.
func TestDrawFollowsTheLaw(t *testing.T) {
	const draws = 200_000
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range []float64{0.5, 0.99, 1, 1 + 1e-12, 1.2, 3} {
		for _, n := range []int{1, 2, 3, 10, 1000, 100_000} {
			l, err := New(s, uint64(n))
			if err != nil {
				t.Fatal(err)
			}
			counts := make([]float64, n)
			for range draws {
				counts[l.next(r)]++
			}
			total := 0.0
			for i := range n {
				total += math.Pow(float64(i+1), -s)
			}
			chi, free, expected, got := 0.0, -1, 0.0, 0.0
			for i := range n {
				expected += draws * math.Pow(float64(i+1), -s) / total
				got += counts[i]
				if expected >= 50 || i == n-1 {
					chi += (got - expected) * (got - expected) / max(expected, 1e-9)
					free, expected, got = free+1, 0, 0
				}
			}
			if bound := float64(free) + 5*math.Sqrt(2*float64(free)+1) + 5; chi > bound {
				t.Errorf("s %v, n %d: chi-square %v over %d degrees of freedom", s, n, chi, free)
			}
		}
	}
}

// Few draws are used up, and the largest law stays in its range.
func TestDrawIsCheapAndBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, s := range []float64{0.01, 0.99, 1, 1.2, 10} {
		l, err := New(s, MaxValues)
		if err != nil {
			t.Fatal(err)
		}
		refused := 0
		for i := range 20_000 {
			u := r.Float64()
			if i < 2 {
				u = []float64{0, math.Nextafter(1, 0)}[i]
			}
			v, ok := l.Draw(u)
			if v >= MaxValues {
				t.Fatalf("s %v: value %d", s, v)
			}
			if !ok {
				refused++
			}
		}
		if refused > 2000 {
			t.Errorf("s %v: %d of 20,000 draws used up", s, refused)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		s float64
		n uint64
	}{{0, 5}, {-1, 5}, {math.NaN(), 5}, {11, 5}, {1, 0}, {1, MaxValues + 1}} {
		if _, err := New(c.s, c.n); err == nil {
			t.Errorf("exponent %v over %d values is taken", c.s, c.n)
		}
	}
}

func BenchmarkDraw(b *testing.B) {
	l, err := New(0.99, 50_000_000)
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		l.next(r)
	}
}
