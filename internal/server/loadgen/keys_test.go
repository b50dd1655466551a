package loadgen

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestKeysAreScrambled(t *testing.T) {
	const n = 100_000
	var bits [64]int
	seen := map[uint64]bool{}
	for rank := range uint64(n) {
		key := Key(rank)
		if seen[key] {
			t.Fatalf("rank %d has the key of another", rank)
		}
		seen[key] = true
		for i := range bits {
			bits[i] += int(key >> i & 1)
		}
	}
	for i, ones := range bits {
		if math.Abs(float64(ones)-n/2) > 5*math.Sqrt(n)/2 {
			t.Errorf("bit %d is set in %d of %d keys", i, ones, n)
		}
	}
}

// Batches hold no key twice, keys of the first ranks alone, and are not all alike.
func TestPool(t *testing.T) {
	const n, size = 2000, 100
	ranks := map[uint64]uint64{}
	for rank := range uint64(n) {
		ranks[Key(rank)] = rank
	}
	var p pool
	var seen set
	r := rand.New(rand.NewPCG(1, 2))
	for _, d := range []Dist{{}, {0.99}, {1.2}} {
		must(t, p.draw(n, size, 50*size+size/2, d, &seen, r))
		if p.batches() != 50 {
			t.Fatalf("%v: %d batches", d, p.batches())
		}
		first := 0
		for i := range p.batches() {
			b := p.batch(i)
			set := map[uint64]bool{}
			for _, key := range b {
				rank, known := ranks[key]
				if !known || set[key] {
					t.Fatalf("%v: batch %d: key %x, known: %v, again: %v", d, i, key, known, set[key])
				}
				set[key] = true
				if rank < n/10 {
					first++
				}
			}
			if i > 0 && slices.Equal(b, p.batch(i-1)) {
				t.Errorf("%v: batch %d is the one before", d, i)
			}
		}
		share := float64(first) / (50 * size)
		if even := math.Abs(share-0.1) < 0.02; even != (d.Skew == 0) {
			t.Errorf("%v: the first tenth of ranks has a share of %.2f", d, share)
		}
		for i := range 2 * p.batches() {
			if got := p.take(); got != i%p.batches() {
				t.Fatalf("batch %d in place of %d", got, i%p.batches())
			}
		}
	}
	if must(t, p.draw(n, size, 1, Dist{}, &seen, r)); p.batches() != 1 {
		t.Errorf("%d batches for less than one", p.batches())
	}
}

// The set is one of maps, over its rounds.
func TestSetAgainstMap(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var s set
	for range 200 {
		size := 1 + r.IntN(40)
		s.reset(size)
		twin := map[uint64]bool{}
		for len(twin) < size {
			key := r.Uint64N(60) << r.UintN(60)
			if got := s.add(key); got == twin[key] {
				t.Fatalf("key %d is new: %v", key, got)
			}
			twin[key] = true
		}
	}
	s.reset(8)
	s.add(7)
	s.round = math.MaxUint32 // the next one is the first again
	if s.reset(8); !s.add(7) {
		t.Error("a key of an earlier round")
	}
}
