package nn

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// A table's gradient is the same, bit by bit, however many threads merge it: with ids that all differ, of which a few come
// often, and of which one fills several parts.
func TestTableGradientOfThreads(t *testing.T) {
	const n, each, rows, dim = 300, 26, 100_000, 7
	for name, draw := range map[string]func(r *rand.Rand) int32{
		"different": func(r *rand.Rand) int32 { return int32(r.IntN(rows)) },
		"often":     func(r *rand.Rand) int32 { return int32(r.IntN(1 + r.IntN(rows))) },
		"three":     func(r *rand.Rand) int32 { return int32(r.IntN(3)) * (rows - 1) / 2 },
		"one":       func(*rand.Rand) int32 { return 5 },
	} {
		r := rand.New(rand.NewPCG(1, 2))
		ids := make([]int32, n*each)
		for i := range ids {
			ids[i] = draw(r)
		}
		var wantIDs []int32
		var want []float32
		for _, threads := range []int{1, 2, 3, 7} {
			ps := NewParams(1)
			tab := ps.NewTable("table", UniformRows(1), rows, dim)
			c := random(rand.New(rand.NewPCG(3, 4)), n*each*dim)
			loss := func(t *Tape) *Tensor { return t.dot(t.EmbeddingTable(ids, n, tab, nil), c) }
			if err := ps.Arrange(loss); err != nil {
				t.Fatal(err)
			}
			tape := NewTape(TapeConfig{Kernels: simd.Host(), Threads: threads})
			for range 2 { // the second finds memory there
				tape.Reset()
				tape.Backward(loss(tape), func(int) {})
			}
			gotIDs, got := tab.Grad()
			if wantIDs == nil {
				wantIDs, want = slices.Clone(gotIDs), slices.Clone(got)
			}
			if !slices.Equal(gotIDs, wantIDs) || !slices.Equal(got, want) {
				t.Errorf("%s, %d threads: %d rows, or other values, than the %d of one thread", name, threads, len(gotIDs), len(wantIDs))
			}
			tape.Close()
		}
	}
}
