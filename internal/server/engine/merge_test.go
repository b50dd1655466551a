package engine

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// The merger comes to the sums of a plain loop, in order, however many threads it has.
func TestMerge(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := merger{kernels: simd.Host()}
	for _, c := range []struct{ pushes, keys, most, dim int }{
		{1, 0, 1, 4}, {1, 1, 1, 1}, {2, 100, 100, 16}, {3, 1000, 5000, 3}, {5, 300, 400, 17}, {2, 40_000, 60_000, 2},
	} {
		var pushes []*push
		want := map[uint64][]float32{}
		for session := range c.pushes {
			keys := distinct(rng, c.keys, max(c.keys, c.most))
			values := make([]float32, c.keys*c.dim)
			for i := range values {
				values[i] = float32(rng.NormFloat64())
			}
			p := &push{}
			must(t, p.setRows(session, 1, 0, c.dim, keys, values))
			pushes = append(pushes, p)
			for i, key := range keys {
				if want[key] == nil {
					want[key] = make([]float32, c.dim)
					copy(want[key], values[i*c.dim:])
					continue
				}
				for j := range c.dim {
					want[key][j] += values[i*c.dim+j]
				}
			}
			clear(keys) // copied
			clear(values)
		}
		keys, sums := m.merge(pushes, c.dim)
		if len(keys) != len(want) || len(sums) != len(keys)*c.dim {
			t.Fatalf("%+v: %d keys, %d values, want %d keys", c, len(keys), len(sums), len(want))
		}
		for i, key := range keys {
			if w := want[key]; w == nil || !same(w, sums[i*c.dim:][:c.dim]) {
				t.Fatalf("%+v: key %d is %v, want %v", c, key, sums[i*c.dim:][:c.dim], w)
			}
			delete(want, key) // each once
		}
	}
}

func TestMergeDense(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	kernels := simd.Host()
	const lo, n, per = 16, 103, 2
	for _, missing := range []int{0, 1, 50} {
		want, sum := make([]float32, n), make([]float32, n)
		for i := range sum {
			sum[i] = 99 // of the step before
		}
		var pushes []*push
		for trainer := range 3 {
			values := make([]float32, n-missing)
			for i := range values {
				values[i] = float32(rng.NormFloat64())
				if trainer == 0 {
					want[i] = values[i]
				} else {
					want[i] += values[i]
				}
			}
			for at := 0; at < len(values); {
				end := min(len(values), at+1+rng.IntN(40))
				p := &push{}
				p.setDense(trainer*per, uint64(at+1), 0, lo+at, values[at:end])
				pushes = append(pushes, p)
				at = end
			}
		}
		mergeDense(kernels, pushes, per, lo, sum)
		if !same(sum, want) {
			t.Errorf("%d values missing: %v, want %v", missing, sum, want)
		}
	}
}

// A key twice is found wherever the two are.
func TestUnique(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	p := &push{}
	for range 200 {
		keys := distinct(rng, 2+rng.IntN(300), 1000)
		must(t, p.setRows(0, 1, 0, 1, keys, make([]float32, len(keys))))
		i := rng.IntN(len(keys))
		keys = slices.Insert(keys, rng.IntN(len(keys)), keys[i])
		if err := p.setRows(0, 1, 0, 1, keys, make([]float32, len(keys))); err == nil {
			t.Fatalf("key %d twice in %d", keys[i], len(keys))
		}
	}
}

func BenchmarkMerge(b *testing.B) {
	const trainers, keys, dim = 4, 20_000, 16
	rng := rand.New(rand.NewPCG(7, 8))
	var pushes []*push
	for session := range trainers {
		p := &push{}
		must(b, p.setRows(session, 1, 0, dim, distinct(rng, keys, 60_000), make([]float32, keys*dim)))
		pushes = append(pushes, p)
	}
	m := merger{}
	for b.Loop() {
		m.merge(pushes, dim)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(trainers*keys), "ns/row")
}

func BenchmarkKeep(b *testing.B) {
	const keys, dim = 20_000, 16
	rng := rand.New(rand.NewPCG(7, 8))
	k, v, p := distinct(rng, keys, 60_000), make([]float32, keys*dim), &push{}
	for b.Loop() {
		must(b, p.setRows(0, 1, 0, dim, k, v))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keys, "ns/row")
}
