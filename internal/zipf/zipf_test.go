package zipf

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func (l *Law) next(r *rand.Rand) uint64 { return l.Draw(r.Uint64(), r.Uint64(), r.Uint64()) }

// Draws follow the law: chi-square over all values, rare values merged.
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

// A billion values follow the law in ranges over the whole domain, and the largest law stays below
// its limit.
func TestDrawOfManyValues(t *testing.T) {
	for _, c := range []struct {
		values   uint64
		exponent float64
	}{{1 << 30, 0.8}, {1 << 30, 2}, {maxValues, 0.99}, {maxValues, 10}} {
		l, err := New(c.exponent, c.values)
		if err != nil {
			t.Fatal(err)
		}
		weight := func(lo, hi uint64) float64 { // values from lo to hi-1, from 0
			sum := 0.0
			for v := lo; v < min(hi, lo+1000); v++ {
				sum += math.Pow(float64(v+1), -c.exponent)
			}
			if hi > lo+1000 { // Euler-Maclaurin, first terms
				a, b := float64(lo+1000)+0.5, float64(hi)+0.5
				sum += (math.Pow(b, 1-c.exponent) - math.Pow(a, 1-c.exponent)) / (1 - c.exponent)
			}
			return sum
		}
		const draws = 200_000
		edges := []uint64{0, 1, 2, 10, 100, 1000, 1 << 20, 1 << 30, maxValues}
		counts := make([]int, len(edges))
		r := rand.New(rand.NewPCG(7, 8))
		for range draws {
			v := l.next(r)
			if v >= c.values {
				t.Fatalf("value %d of %d", v, c.values)
			}
			at, _ := slices.BinarySearch(edges, v+1)
			counts[at-1]++
		}
		for i := range len(edges) - 1 {
			lo, hi := min(edges[i], c.values), min(edges[i+1], c.values)
			want := draws * weight(lo, hi) / weight(0, c.values)
			if got := float64(counts[i]); math.Abs(got-want) > 5*math.Sqrt(want)+0.01*want+5 {
				t.Errorf("%+v: values from %d to %d come %v times, want %v", c, lo, hi, got, want)
			}
		}
	}
}

// New refuses exponents and numbers of values outside its limits.
func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		s float64
		n uint64
	}{{0, 5}, {-1, 5}, {math.NaN(), 5}, {11, 5}, {1, 0}, {1, maxValues + 1}} {
		if _, err := New(c.s, c.n); err == nil {
			t.Errorf("exponent %v over %d values is taken", c.s, c.n)
		}
	}
}

// An alias table's places give each outcome its share.
func TestAliasKeepsShares(t *testing.T) {
	for _, share := range [][]float64{{1}, {1, 1}, {0.2, 0, 0.04, 3.76}, {0.75, 0.25, 1, 0.25, 1.25, 2.25, 0.5, 1.75}} {
		table := NewAlias(slices.Clone(share), 1, func(x float64) uint64 { return uint64(x * (1 << 63)) })
		got := make([]float64, len(share))
		for i := range table.keep {
			own := float64(table.keep[i]) / (1 << 63)
			got[i] += own
			got[table.alias[i]] += 1 - own
		}
		for i, want := range share {
			if math.Abs(got[i]-want) > 1e-9 {
				t.Errorf("%v: outcome %d has %v, want %v", share, i, got[i], want)
			}
		}
	}
}

// Integer powers and logarithms match floating point.
func TestWholeNumbers(t *testing.T) {
	for x := int64(-20 << 16); x <= 0; x += 4999 {
		if got, want := float64(Exp2(x))/(1<<32), math.Exp2(float64(x)/(1<<16)); math.Abs(got-want) > 1e-9 {
			t.Errorf("2^%v is %v, want %v", float64(x)/(1<<16), got, want)
		}
	}
	for x := uint64(1); x < 1<<62; x = x*3/2 + 1 {
		if got, want := float64(log2(x))/(1<<16), math.Log2(float64(x)); math.Abs(got-want) > 1.0/(1<<15) {
			t.Errorf("log2 of %d is %v, want %v", x, got, want)
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
