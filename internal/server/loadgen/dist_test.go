package loadgen

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Ranks come as often as the name of their distribution says.
func TestRanksFollowTheirDistribution(t *testing.T) {
	const draws, n = 200_000, 500
	for _, d := range []Dist{{}, {0.99}, {1.2}} {
		next, err := d.ranks(n, rand.New(rand.NewPCG(1, 2)))
		must(t, err)
		counts, sum := make([]float64, n), 0.0
		for range draws {
			counts[next()]++
		}
		for k := range n {
			sum += math.Pow(float64(k+1), -d.Skew)
		}
		for _, k := range []int{0, 1, 2, 10, 100, n - 1} {
			want := draws * math.Pow(float64(k+1), -d.Skew) / sum
			if math.Abs(counts[k]-want) > 5*math.Sqrt(want) {
				t.Errorf("%v: rank %d was drawn %v times, want about %.0f", d, k, counts[k], want)
			}
		}
	}
}

func TestParseDist(t *testing.T) {
	for text, want := range map[string]Dist{"uniform": {}, "zipf:0.99": {0.99}, "zipf:4": {4}, "zipf:1e-3": {0.001}} {
		got, err := ParseDist(text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		if again, err := ParseDist(got.String()); err != nil || again != got {
			t.Errorf("%v writes itself as %q: %v", got, got.String(), err)
		}
	}
	for _, text := range []string{"", "zipf", "zipf:", "zipf:0", "zipf:-1", "zipf:NaN", "zipf:5", "0.99", "uniform:1", "normal"} {
		if d, err := ParseDist(text); err == nil {
			t.Errorf("%q is %v", text, d)
		}
	}
}

func TestBeyond(t *testing.T) {
	const n = 5000
	for _, skew := range []float64{0, 0.5, 0.99, 1, 1.2, 3} {
		for _, first := range []int{1, 40, 600} {
			behind, all := 0.0, 0.0
			for k := 1; k <= n; k++ {
				p := math.Pow(float64(k), -skew)
				if all += p; k > first {
					behind += p
				}
			}
			if got, want := (Dist{skew}).beyond(float64(first), n), behind/all; math.Abs(got-want) > 0.1*want {
				t.Errorf("skew %v: %v beyond %d, want %v", skew, got, first, want)
			}
		}
	}
}
