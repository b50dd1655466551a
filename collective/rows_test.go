package collective

import (
	"math"
	"testing"

	"github.com/ringo-ml/ringo/internal/transport/mem"
)

// By rows the operands are added in the order of the ranks, so that the bits are
// those of the naive algorithm, of whatever length chunks and segments are.
// It holds invariant[sum-order].
func TestRowsAddInRankOrder(t *testing.T) {
	const segment = 4 << 10
	for _, size := range []int{2, 3, 4, 5, 8, 11} {
		for _, n := range []int{0, 1, size - 1, size + 1, size * segment / 4, 3*size*segment/4 + size/2 + 1} {
			results := make([][][]float32, 2)
			for i, algorithm := range []string{Pairwise, Naive} {
				results[i] = make([][]float32, size)
				onRanks(t, size, Config{Algorithm: algorithm, SegmentBytes: segment}, func(g *Group) error {
					x := make([]float32, n)
					for i := range x {
						x[i] = float32(math.Sin(float64(i*(g.Rank()+3)))) * float32(int(1)<<(5*g.Rank()%23))
					}
					results[i][g.Rank()] = x
					return AllReduce(g, x, Sum)
				})
			}
			for rank, x := range results[0] {
				for i, v := range x {
					if want := results[1][0][i]; math.Float32bits(v) != math.Float32bits(want) {
						t.Fatalf("%d values, rank %d of %d: value %d is %v, want %v", n, rank, size, i, v, want)
					}
				}
			}
		}
	}
}

// Each row is a message to each other rank with operands and one with sums. A chunk of two segments is one row where
// there are more than two ranks; of a longer one each segment is a row.
func TestRowsCount(t *testing.T) {
	const segment = 4 << 10
	for _, c := range []struct{ size, segments, rows int }{
		{2, 1, 1}, {2, 2, 2}, {4, 1, 1}, {4, 2, 1}, {4, 3, 3}, {4, 6, 6},
	} {
		meshes := mem.New(c.size)
		for _, err := range onMeshes(t, meshes, Config{Algorithm: Pairwise, SegmentBytes: segment}, func(g *Group) error {
			return AllReduce(g, make([]float32, c.size*c.segments*segment/4), Sum)
		}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		peers := int64(2 * (c.size - 1))
		for rank, m := range meshes {
			got := m.Traffic()
			if got.MessagesSent != int64(c.rows)*peers || got.PayloadSent != int64(c.segments*segment)*peers {
				t.Errorf("%+v: rank %d sent %d messages with %d bytes", c, rank, got.MessagesSent, got.PayloadSent)
			}
		}
	}
}
