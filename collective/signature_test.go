package collective

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/transport/mem"
)

func TestSignature(t *testing.T) {
	for _, c := range []struct {
		w    *Work
		want string
	}{
		{&Work{operands: operands{kind: kindAllReduce, elem: float32s, op: Mean, algorithm: byRing, x: make([]byte, 400)}}, "allreduce (mean) of 100 float32 by ring"},
		{&Work{operands: operands{kind: kindBroadcast, elem: int64s, algorithm: byTree, root: 3, x: make([]byte, 8)}}, "broadcast of 1 int64 with root 3 by tree"},
		{&Work{operands: operands{kind: kindAllGather, elem: uint8s, algorithm: byRing, x: make([]byte, 1<<20)}}, "allgather of 1048576 uint8 by ring"},
		{&Work{operands: operands{kind: kindBarrier, elem: uint8s, algorithm: byDoubling}}, "barrier by doubling"},
	} {
		if got := c.w.signature().String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// No signature, from whoever it may come, upsets its description.
func FuzzSignature(f *testing.F) {
	f.Add(uint64(0))
	f.Add(^uint64(0))
	f.Fuzz(func(t *testing.T, s uint64) {
		if signature(s).String() == "" {
			t.Errorf("%#x says nothing", s)
		}
	})
}

// Ranks that disagree about the type or the reduction are told, on all of them,
// and no sum is returned.
func TestMismatch(t *testing.T) {
	said := map[string][2]string{
		"type": {"allreduce (sum) of 40 float32", "allreduce (sum) of 40 int32"}, "reduction": {"(sum)", "(max)"}, "length": {"of 40 float32", "of 39 float32"},
	}
	for name, run := range map[string]func(g *Group, odd bool) error{
		"type": func(g *Group, odd bool) error {
			if odd {
				return AllReduce(g, make([]int32, 40), Sum)
			}
			return AllReduce(g, make([]float32, 40), Sum)
		},
		"reduction": func(g *Group, odd bool) error {
			return AllReduce(g, make([]float32, 40), map[bool]ReduceOp{true: Max}[odd])
		},
		"length": func(g *Group, odd bool) error {
			return AllReduce(g, make([]float32, map[bool]int{true: 39, false: 40}[odd]), Sum)
		},
	} {
		for _, size := range []int{2, 3, 5} {
			errs := onMeshes(t, mem.New(size), Config{}, func(g *Group) error {
				if err := run(g, g.Rank() == 1); err == nil {
					return errors.New("nothing was noticed")
				} else if text := err.Error(); !strings.Contains(text, said[name][0]) || !strings.Contains(text, said[name][1]) {
					return fmt.Errorf("%w: it does not say who does what", err)
				} else if op := asOpError(t, err); op.Seq != 0 {
					return fmt.Errorf("operation %d is blamed", op.Seq)
				}
				return nil
			})
			for r, err := range errs {
				if err != nil {
					t.Errorf("%s: rank %d of %d: %v", name, r, size, err)
				}
			}
		}
	}
}
