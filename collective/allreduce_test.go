package collective

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/transport/mem"
)

// serialRing is the ring's result by its definition: chunk c is the sum that
// begins at rank c and goes round.
func serialRing(n, size int, op ReduceOp, of func(rank, i int) float32) []float32 {
	out := make([]float32, n)
	for c := range size {
		lo, hi := RingChunk(n, size, c)
		for i := lo; i < hi; i++ {
			sum := of(c, i)
			for k := 1; k < size; k++ {
				sum = of((c+k)%size, i) + sum
			}
			if op == Mean {
				sum *= 1 / float32(size)
			}
			out[i] = sum
		}
	}
	return out
}

func filled(rank, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = operand(rank, i)
	}
	return x
}

// Every rank gets the bits that the definition gives, for any number of ranks
// and any length, whatever the segmentation.
func TestRingAllReduceBits(t *testing.T) {
	for _, size := range []int{1, 2, 3, 4, 5, 7, 8, 16, 33, 64} {
		lengths := []int{0, 1, 2, size - 1, size, size + 1, 1000, 2099}
		want := map[ReduceOp][][]float32{}
		for _, op := range []ReduceOp{Sum, Mean} {
			for _, n := range lengths {
				want[op] = append(want[op], serialRing(n, size, op, operand))
			}
		}
		onRanks(t, size, Config{Algorithm: Ring, SegmentBytes: 256}, func(g *Group) error {
			for i, n := range lengths {
				for op := range Mean + 1 {
					x := filled(g.Rank(), n)
					if err := AllReduce(g, x, op); err != nil {
						return err
					}
					if err := same(fmt.Sprintf("%d ranks, %v of %d", size, op, n), x, want[op][i]); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
}

// The naive twin agrees to rounding, and exactly on integers.
func TestRingAgainstNaive(t *testing.T) {
	for _, size := range []int{2, 3, 5, 8} {
		results := map[string][]float32{}
		for _, algorithm := range []string{Ring, Naive} {
			onRanks(t, size, Config{Algorithm: algorithm, SegmentBytes: 512}, func(g *Group) error {
				x := filled(g.Rank(), 3001)
				err := AllReduce(g, x, Mean)
				if g.Rank() == size-1 {
					results[algorithm] = x
				}
				return err
			})
		}
		for i, v := range results[Ring] {
			if d := math.Abs(float64(v - results[Naive][i])); d > 1e-5 {
				t.Fatalf("%d ranks: value %d: ring %v, naive %v", size, i, v, results[Naive][i])
			}
		}
	}
}

type weight float32
type count int64

func checkType[T Number](g *Group) error {
	for _, n := range []int{0, 1, 5, 777} {
		x, want := make([]T, n), make([]T, n)
		for i := range x {
			x[i] = T((g.Rank() + i) % 5)
			for r := range g.Size() {
				want[i] += T((r + i) % 5)
			}
		}
		if err := AllReduce(g, x, Sum); err != nil {
			return err
		}
		if err := same(fmt.Sprintf("sum of %T", x), x, want); err != nil {
			return err
		}
	}
	return nil
}

func TestTypes(t *testing.T) {
	for _, algorithm := range []string{Ring, Naive} {
		onRanks(t, 3, Config{Algorithm: algorithm, SegmentBytes: 64}, func(g *Group) error {
			checks := []func(*Group) error{
				checkType[float32], checkType[float64], checkType[int32], checkType[int64], checkType[uint8],
				checkType[weight], checkType[count],
			}
			for _, check := range checks {
				if err := check(g); err != nil {
					return fmt.Errorf("%s: %w", algorithm, err)
				}
			}
			return nil
		})
	}
}

func TestElementOf(t *testing.T) {
	got := []element{elementOf[float32](), elementOf[float64](), elementOf[int32](), elementOf[int64](), elementOf[uint8](), elementOf[weight](), elementOf[count](), elementOf[Float16](), elementOf[BFloat16]()}
	want := []element{float32s, float64s, int32s, int64s, uint8s, float32s, int64s, float16s, bfloat16s}
	if !slices.Equal(got, want) {
		t.Errorf("elements %v, want %v", got, want)
	}
}

// Many operations in flight, of lengths that run together and that run alone,
// waited for in the reverse order, a blocking one among them.
func TestInFlightAnyWaitOrder(t *testing.T) {
	lengths := []int{1, 40000, 3, 0, 100, 257, 9000, 2, 64, 65, 1000, 30000, 7}
	for _, inFlight := range []int{1, 2, 4} {
		onRanks(t, 4, Config{Algorithm: Ring, SegmentBytes: 1024, InFlight: inFlight}, func(g *Group) error {
			for range 5 {
				if err := startMany(g, lengths); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func startMany(g *Group, lengths []int) error {
	var xs [][]float32
	var works []*Work
	for _, n := range lengths {
		xs = append(xs, filled(g.Rank(), n))
		works = append(works, StartAllReduce(g, xs[len(xs)-1], Sum))
	}
	last := filled(g.Rank(), 50)
	if err := AllReduce(g, last, Sum); err != nil {
		return err
	}
	for i := len(works) - 1; i >= 0; i-- {
		if err := works[i].Wait(); err != nil {
			return err
		}
		if err := same("in flight", xs[i], serialRing(lengths[i], g.Size(), Sum, operand)); err != nil {
			return err
		}
	}
	return same("blocking", last, serialRing(50, g.Size(), Sum, operand))
}

// A group of some ranks of the mesh, in an order of its own, works beside the
// group of all.
func TestSubset(t *testing.T) {
	ranks := []int{4, 1, 3}
	onRanks(t, 5, Config{Algorithm: Ring}, func(g *Group) error {
		place := slices.Index(ranks, g.Rank())
		all := []float32{1}
		if place < 0 {
			return AllReduce(g, all, Sum)
		}
		sub, err := New(g.mesh, Config{Algorithm: Ring, Ranks: ranks, ID: 1, SegmentBytes: 64})
		if err != nil {
			return err
		}
		defer sub.Close()
		if sub.Rank() != place || sub.Size() != len(ranks) {
			return fmt.Errorf("rank %d of %d in the group, want %d of %d", sub.Rank(), sub.Size(), place, len(ranks))
		}
		x := filled(place, 777)
		parts := make([]int32, len(ranks))
		w := StartAllReduce(sub, x, Mean)
		err = errors.Join(AllReduce(g, all, Sum), AllGather(sub, parts, []int32{int32(g.Rank())}), w.Wait())
		if err != nil {
			return err
		}
		return errors.Join(
			same("all", all, []float32{5}),
			same("parts", parts, []int32{4, 1, 3}),
			same("some", x, serialRing(777, len(ranks), Mean, operand)),
		)
	})
}

// Groups of some ranks, in orders of their own, have every operation, by messages and in
// shared memory; of one rank, too.
func TestSubsetsHaveEverything(t *testing.T) {
	subsets := [][]int{{5, 1, 4}, {2}, {3, 6, 0, 7}}
	hosts := []int{0, 0, 1, 1, 0, 1, 0, 0}
	for name, form := range pairMeshes {
		for _, algorithm := range append(Algorithms(), "") {
			if name == "shared" && algorithm != "" || algorithm == Direct || algorithm == Exchange {
				continue
			}
			for r, err := range onMeshes(t, form(len(hosts)), Config{ID: 7}, func(g *Group) error {
				ranks := subsets[slices.IndexFunc(subsets, func(s []int) bool { return slices.Contains(s, g.Rank()) })]
				sub, err := New(g.mesh, Config{Algorithm: algorithm, Ranks: ranks, Hosts: hosts, ID: 1, SegmentBytes: 128})
				if err != nil {
					return err
				}
				defer sub.Close()
				if name == "shared" && len(ranks) > 1 && !sub.share.whole(len(ranks)) {
					return errors.New("memory is not used")
				}
				return errors.Join((&trial[float32]{g: sub}).all([]int{0, 1, len(ranks) - 1, 37}), (&trial[int64]{g: sub}).all([]int{5}), Barrier(g))
			}) {
				if err != nil {
					t.Errorf("%s, %q: rank %d: %v", name, algorithm, r, err)
				}
			}
		}
	}
}

func TestWrongMembers(t *testing.T) {
	m := mem.New(3)[1]
	for want, cfg := range map[string]Config{
		"3 is not a rank of a mesh of 3": {Ranks: []int{1, 3}},
		"1 is there twice":               {Ranks: []int{1, 0, 1}},
		"1, is missing":                  {Ranks: []int{0, 2}},
		"want one for each":              {Hosts: []int{0, 0}},
	} {
		if _, err := New(m, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// Every reduction against its definition, for every type.
func TestReductions(t *testing.T) {
	for _, algorithm := range []string{Ring, Naive} {
		onRanks(t, 3, Config{Algorithm: algorithm, SegmentBytes: 64}, func(g *Group) error {
			return errors.Join(checkReductions[float32](g), checkReductions[float64](g), checkReductions[int32](g),
				checkReductions[int64](g), checkReductions[uint8](g))
		})
	}
}

func checkReductions[T Number](g *Group) error {
	const n = 101
	value := func(r, i int) T { return T((r*7+i*3)%5 + 1) }
	for op := range reductions {
		fold := map[ReduceOp]func(a, b T) T{
			Sum:  func(a, b T) T { return a + b },
			Min:  func(a, b T) T { return min(a, b) },
			Max:  func(a, b T) T { return max(a, b) },
			Prod: func(a, b T) T { return a * b },
		}[op]
		if fold == nil {
			continue // Mean, see serialRing
		}
		x, want := make([]T, n), make([]T, n)
		for i := range x {
			x[i], want[i] = value(g.Rank(), i), value(0, i)
			for r := 1; r < g.Size(); r++ {
				want[i] = fold(want[i], value(r, i))
			}
		}
		if err := AllReduce(g, x, op); err != nil {
			return err
		}
		if err := same(fmt.Sprintf("%v of %T", op, x), x, want); err != nil {
			return err
		}
	}
	return nil
}
