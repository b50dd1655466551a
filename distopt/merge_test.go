package distopt

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// What two ranks' rows are folded to is what they are merged to, in two parts, each
// ascending: whatever share of the ids both have.
func TestPart(t *testing.T) {
	m, whole := merger{kernels: simd.Host()}, merger{kernels: simd.Host()}
	for trial := range uint64(400) {
		rng := rand.New(rand.NewPCG(trial, 1))
		shape, counts := Table{Rows: 1 + rng.IntN(1<<(trial%11)), Dim: 1 + rng.IntN(20)}, make([]int, 2)
		var ids []int32
		for r := range counts {
			own := make([]int32, rng.IntN(80)*rng.IntN(3))
			for i := range own {
				own[i] = int32(rng.IntN(shape.Rows))
			}
			slices.Sort(own)
			own = slices.Compact(own)
			counts[r], ids = len(own), append(ids, own...)
		}
		rows := make([]float32, len(ids)*shape.Dim)
		for i := range rows {
			rows[i] = rng.Float32()
		}
		sum := func(ids []int32, rows []float32, into map[int32][]float32) {
			for k, id := range ids {
				if k > 0 && ids[k-1] >= id || into[id] != nil {
					t.Fatalf("trial %d: id %d at %d of %v comes again", trial, id, k, ids)
				}
				into[id] = slices.Clone(rows[k*shape.Dim:][:shape.Dim])
			}
		}
		want, got := map[int32][]float32{}, map[int32][]float32{}
		wantIDs, wantRows := whole.merge(shape.Dim, counts, ids, rows)
		sum(wantIDs, wantRows, want)
		restIDs, restRows := m.part(shape.Dim, counts, ids, rows)
		if len(restRows) != len(restIDs)*shape.Dim {
			t.Fatalf("trial %d: %d values for %d rows", trial, len(restRows), len(restIDs))
		}
		sum(ids[:counts[0]], rows, got)
		sum(restIDs, restRows, got)
		if !maps.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("trial %d: %v and %v of %v are folded to %v, merged to %v", trial, counts[0], counts[1], ids, got, want)
		}
	}
}

func BenchmarkPart(b *testing.B) {
	shape := Table{Rows: 1000001, Dim: 10}
	rng := rand.New(rand.NewPCG(1, 1))
	counts, all := make([]int, 2), []int32(nil)
	for r := range counts {
		ids := make([]int32, 512*26)
		for i := range ids {
			ids[i] = int32(rng.IntN(shape.Rows))
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
		counts[r], all = len(ids), append(all, ids...)
	}
	rows, ids := make([]float32, len(all)*shape.Dim), slices.Clone(all)
	m := merger{kernels: simd.Host()}
	b.ReportAllocs()
	for b.Loop() {
		m.part(shape.Dim, counts, ids, rows)
		copy(ids, all)
	}
}
