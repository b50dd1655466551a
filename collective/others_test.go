package collective

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
)

func TestBroadcast(t *testing.T) {
	for _, size := range []int{1, 2, 3, 5, 8, 13, 64} {
		onRanks(t, size, Config{SegmentBytes: 128}, func(g *Group) error {
			for root := 0; root < size; root += 1 + size/4 {
				for _, n := range []int{0, 1, 32, 33, 2500} {
					x := filled(g.Rank(), n)
					if err := Broadcast(g, x, root); err != nil {
						return err
					}
					if err := same(fmt.Sprintf("broadcast from %d of %d", root, size), x, filled(root, n)); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
}

func TestAllGather(t *testing.T) {
	for _, size := range []int{1, 2, 3, 5, 16, 64} {
		onRanks(t, size, Config{SegmentBytes: 128}, func(g *Group) error {
			for _, n := range []int{0, 1, 31, 400} {
				dst := make([]float32, n*size)
				want := make([]float32, 0, n*size)
				for r := range size {
					want = append(want, filled(r, n)...)
				}
				if err := AllGather(g, dst, filled(g.Rank(), n)); err != nil {
					return err
				}
				if err := same("allgather", dst, want); err != nil {
					return err
				}
				clear(dst)
				own := dst[g.Rank()*n:][:n]
				copy(own, filled(g.Rank(), n))
				if err := AllGather(g, dst, own); err != nil {
					return err
				}
				if err := same("allgather in place", dst, want); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// Nobody leaves a barrier before everybody has come.
func TestBarrier(t *testing.T) {
	for _, size := range []int{1, 2, 3, 6, 8, 64} {
		var came atomic.Int32
		onRanks(t, size, Config{}, func(g *Group) error {
			for round := range 5 {
				came.Add(1)
				if err := Barrier(g); err != nil {
					return err
				}
				if n := int(came.Load()); n < (round+1)*size {
					return fmt.Errorf("left barrier %d when %d of %d had come", round, n-round*size, size)
				}
				if err := StartBarrier(g).Wait(); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// Both trees reach every rank exactly once, over the parent that each expects.
func TestTrees(t *testing.T) {
	for size := 1; size <= 65; size++ {
		for _, chain := range []bool{true, false} {
			seen := []int{0}
			for place := range size {
				for c := treeChild(place, size, 0, chain); c > 0; c = treeChild(place, size, c, chain) {
					if treeParent(c, chain) != place {
						t.Fatalf("size %d, chain %v: %d's child %d expects %d", size, chain, place, c, treeParent(c, chain))
					}
					seen = append(seen, c)
				}
			}
			slices.Sort(seen)
			if len(seen) != size || len(slices.Compact(seen)) != size {
				t.Fatalf("size %d, chain %v: the tree reaches %v", size, chain, seen)
			}
		}
	}
}
