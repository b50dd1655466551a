package exchange

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/compress"
)

// Borders are moved until every owner receives about the same, however crowded the
// entries are and however much the ranks differ; they are the same on all ranks, and
// looked at again as often as configured.
func TestBorders(t *testing.T) {
	const n, size = 200_000, 6
	for _, c := range []struct {
		name  string
		place func(rng *rand.Rand, rank int) int
	}{
		{"even", func(rng *rand.Rand, rank int) int { return rng.IntN(n) }},
		{"at the front", func(rng *rand.Rand, rank int) int { return rng.IntN(n / 300) }},
		{"at both ends", func(rng *rand.Rand, rank int) int { return (rng.IntN(n/100) + n - n/200) % n }},
		{"each rank elsewhere", func(rng *rand.Rand, rank int) int { return rank*rank*rank*n/300 + rng.IntN(n/200) }},
	} {
		borders := make([][]int, size)
		loads := make([]int, size)
		vectors := make([]*compress.Sparse, size)
		for r := range size {
			rng := rand.New(rand.NewPCG(6, uint64(r)))
			s := &compress.Sparse{Len: n}
			for range 3000 {
				s.Index = append(s.Index, int32(c.place(rng, r)))
			}
			slices.Sort(s.Index)
			s.Index = slices.Compact(s.Index)
			s.Value = make([]float32, len(s.Index))
			for i := range s.Value {
				s.Value[i] = 1
			}
			vectors[r] = s
		}
		onRanks(t, size, Config{Algorithm: Split, Rebalance: 3}, func(e *GroupReducer, rank int) error {
			op := &Request{X: make([]float32, n), Sparse: vectors[rank]}
			for step := range 8 {
				if err := do(e, op); err != nil {
					return err
				}
				if p := op.ReducerState.(*requestState).part; p.used != step%3+1 {
					return fmt.Errorf("step %d: borders are %d exchanges old", step, p.used)
				}
			}
			borders[rank] = op.ReducerState.(*requestState).part.borders
			return nil
		})
		if t.Failed() {
			return
		}
		total := 0
		for r := range size {
			if !slices.Equal(borders[r], borders[0]) || !slices.IsSorted(borders[r]) || borders[r][0] != 0 || borders[r][size] != n {
				t.Fatalf("%s: rank %d has borders %v, rank 0 %v", c.name, r, borders[r], borders[0])
			}
			for _, at := range vectors[r].Index {
				owner, _ := slices.BinarySearch(borders[0][1:], int(at)+1)
				loads[owner]++
			}
			total += vectors[r].Count()
		}
		if most := slices.Max(loads); most*size > total*13/10 {
			t.Errorf("%s: owners receive %v, borders %v", c.name, loads, borders[0])
		}
	}
}

// More ranks than values, and than entries.
func TestFewerValuesThanRanks(t *testing.T) {
	for _, n := range []int{0, 1, 3} {
		onRanks(t, 5, Config{Algorithm: Split, Rebalance: 1}, func(e *GroupReducer, rank int) error {
			op := &Request{X: make([]float32, n), Sparse: &compress.Sparse{Len: n}}
			if n > 0 {
				op.Sparse.Append(n-1, float32(rank))
			}
			for range 3 {
				if err := do(e, op); err != nil {
					return err
				}
			}
			if n > 0 && op.X[n-1] != 10 {
				return fmt.Errorf("%v", op.X)
			}
			return nil
		})
	}
}
