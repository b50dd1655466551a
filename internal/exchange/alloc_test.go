package exchange

import (
	"math/rand/v2"
	"testing"

	"github.com/ringo-ml/ringo/compress"
)

// A steady exchange allocates nothing, while its peers do the same.
func TestExchangeAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	const runs = 20
	for _, kind := range []string{AllGather, Tree, Split, Dense, "chunks", "fp32", "fp16"} {
		for _, size := range []int{1, 3} {
			onRanks(t, size, configOf(kind), func(e *GroupReducer, rank int) error {
				op := kindsOf(rank)[kind]()
				own := compress.Sparse{}
				if op.Sparse != nil {
					own = *clone(op.Sparse)
					op.MaxEntries = 300 * rand.New(rand.NewPCG(uint64(len(kind)), 1)).IntN(2)
				}
				step := func() {
					if op.Sparse != nil {
						op.Sparse.Index = append(op.Sparse.Index[:0], own.Index...)
						op.Sparse.Value = append(op.Sparse.Value[:0], own.Value...)
					}
					if err := do(e, op); err != nil {
						t.Error(err)
					}
				}
				for range 5 {
					step()
				}
				if rank != 0 {
					for range runs + 1 {
						step()
					}
					return nil
				}
				if per := testing.AllocsPerRun(runs, step); per >= 1 {
					t.Errorf("%s over %d: %v allocations", kind, size, per)
				}
				return nil
			})
		}
	}
}
