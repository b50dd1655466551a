package collective

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/transport/mem"
)

// unshared is the definition: an allreduce, and then every rank updates everything.
func unshared(g *Group, grads, params []float32, rule func(p, sum float32, i int) float32) error {
	if err := AllReduce(g, grads, Sum); err != nil {
		return err
	}
	for i := range params {
		params[i] = rule(params[i], grads[i], i)
	}
	return nil
}

// cuts are the lengths of as many parts of n values, some of them empty.
func cuts(rng *rand.Rand, n, parts int) []int {
	counts, left := make([]int, parts), n
	for i := range parts - 1 {
		counts[i] = min(left, rng.IntN(2*n/parts+1))
		left -= counts[i]
	}
	counts[parts-1] = left
	return counts
}

// inOrder holds Apply to what it promises: blocks of its rank's part, ascending, each once.
type inOrder struct{ at, hi int }

func (o *inOrder) next(lo, hi int) error {
	if lo != o.at || hi <= lo || hi > o.hi || hi-lo > shardBlock {
		return fmt.Errorf("Apply was called for [%d, %d) in a part that goes on from %d to %d", lo, hi, o.at, o.hi)
	}
	o.at = hi
	return nil
}

func partOfRank(counts []int, rank int) (part inOrder) {
	for _, n := range counts[:rank] {
		part.at += n
	}
	part.hi = part.at + counts[rank]
	return part
}

// A shared update has the bits of one that every rank makes whole, however it is cut.
func TestShardedIsTheWholeUpdate(t *testing.T) {
	rule := func(p, sum float32, i int) float32 { return p - 0.3*sum + float32(i%5)*p }
	for _, size := range directRanks() {
		onShared(t, size, Config{}, func(g *Group) error {
			rng := rand.New(rand.NewPCG(1, uint64(size))) // the same on every rank
			for _, n := range []int{1, 16, 17, 1000, shardBlock, 3*shardBlock + 5, 20*shardBlock + 1} {
				counts := cuts(rng, n, size)
				grads := put(g, "arena", numbers(n, func(i int) float32 { return operand(g.Rank(), i) }))
				params := put(g, "apart", numbers(n, func(i int) float32 { return operand(0, i+3) }))
				want := append([]float32(nil), params...)
				if err := unshared(g, append([]float32(nil), grads...), want, rule); err != nil {
					return err
				}
				part, errs := partOfRank(counts, g.Rank()), []error(nil)
				w := StartSharded(g, Sharded{Grads: grads, Params: params, Counts: counts, Apply: func(lo, hi int, sum []float32) {
					errs = append(errs, part.next(lo, hi))
					for i := lo; i < hi; i++ {
						params[i] = rule(params[i], sum[i-lo], i)
					}
				}})
				errs = append(errs, w.Wait(), same(fmt.Sprintf("%d values in parts of %v", n, counts), params, want))
				if sent := g.Sent(); sent != 0 { // as docs/costs.md says
					errs = append(errs, fmt.Errorf("%d bytes were sent", sent))
				}
				if part.at != part.hi {
					errs = append(errs, fmt.Errorf("Apply came to %d of %d", part.at, part.hi))
				}
				if err := errors.Join(errs...); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// Gradients and parameters may take part one after the other, with something in between
// that needs all sums; sums are left with their owners, and other gradients as they were.
func TestShardedInTwoPhases(t *testing.T) {
	const n = 3*shardBlock + 100
	onShared(t, 3, Config{}, func(g *Group) error {
		counts := []int{100, shardBlock - 36, n - shardBlock - 64}
		own := func(i int) float32 { return operand(g.Rank(), i) }
		grads, params := put(g, "arena", numbers(n, own)), put(g, "apart", make([]float32, n))
		part := partOfRank(counts, g.Rank())
		want := numbers(n, own)
		if err := AllReduce(g, want, Sum); err != nil {
			return err
		}
		if err := StartSharded(g, Sharded{Grads: grads, Counts: counts, Apply: func(_, _ int, sum []float32) {
			for i := range sum {
				sum[i] *= 2
			}
		}}).Wait(); err != nil {
			return err
		}
		for i := range n {
			expected := own(i)
			if i >= part.at && i < part.hi {
				expected = 2 * want[i]
			}
			if grads[i] != expected {
				return fmt.Errorf("gradient %d is %v, want %v", i, grads[i], expected)
			}
		}
		if err := StartSharded(g, Sharded{Params: params, Counts: counts, Apply: func(lo, hi int, sum []float32) {
			if sum != nil {
				panic("a sum of nothing")
			}
			for i := lo; i < hi; i++ {
				params[i] = grads[i] + 1
			}
		}}).Wait(); err != nil {
			return err
		}
		for i := range want {
			want[i] = 2*want[i] + 1
		}
		return same("parameters", params, want)
	})
}

// Several are under way at once, among other operations.
func TestShardedSideBySide(t *testing.T) {
	const n, several = 5000, 6
	onShared(t, 4, Config{SegmentBytes: 1 << 20}, func(g *Group) error {
		grads := put(g, "arena", numbers(n*several, func(i int) float32 { return 1 }))
		params := put(g, "apart", make([]float32, n*several))
		var works []*Work
		for k := range several {
			p := params[k*n:][:n]
			works = append(works, StartSharded(g, Sharded{Grads: grads[k*n:][:n], Params: p, Counts: []int{1280, 1280, 1280, n - 3840}, Apply: func(lo, hi int, sum []float32) {
				for i := lo; i < hi; i++ {
					p[i] += sum[i-lo] + float32(k)
				}
			}}), StartBarrier(g))
		}
		for _, w := range works {
			if err := w.Wait(); err != nil {
				return err
			}
		}
		return same("parameters", params, numbers(n*several, func(i int) float32 { return 4 + float32(i/n) }))
	})
}

func TestShardedRefusals(t *testing.T) {
	apply := func(int, int, []float32) {}
	refused := func(g *Group, s Sharded, want string) error {
		err := StartSharded(g, s).Wait()
		if err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("%q: have %v", want, err)
		}
		return nil
	}
	onShared(t, 2, Config{}, func(g *Group) error {
		x, y := put(g, "arena", make([]float32, 64)), put(g, "apart", make([]float32, 32))
		elsewhere := make([]float32, 64)
		return errors.Join(
			refused(g, Sharded{Counts: []int{0, 0}, Apply: apply}, "needs Apply, and Grads or Params"),
			refused(g, Sharded{Grads: x, Counts: []int{0, 64}}, "needs Apply, and Grads or Params"),
			refused(g, Sharded{Grads: x, Params: y, Counts: []int{32, 32}, Apply: apply}, "64 gradients for 32 parameters"),
			refused(g, Sharded{Grads: x, Counts: []int{64}, Apply: apply}, "want one for each of 2 ranks"),
			refused(g, Sharded{Grads: x, Counts: []int{32, 31}, Apply: apply}, "a shared update of 64 values, but Counts add up to 63"),
			refused(g, Sharded{Grads: x, Counts: []int{-1, 65}, Apply: apply}, "the count of rank 0 is -1"),
			refused(g, Sharded{Grads: elsewhere, Counts: []int{32, 32}, Apply: apply}, "are not in memory"),
			refused(g, Sharded{Grads: x, Params: elsewhere, Counts: []int{32, 32}, Apply: apply}, "are not in memory"),
			AllReduce(g, x, Sum), // the group goes on
		)
	})
	onShared(t, 2, Config{Algorithm: Ring}, func(g *Group) error {
		if err := CanShard(g, put(g, "arena", make([]float32, 64))); err == nil || err.Error() != "an allreduce of 64 values is carried out by ring, which does not share the sums" {
			return fmt.Errorf("with sums by ring: %v", err)
		}
		return nil
	})
	onRanks(t, 2, Config{}, func(g *Group) error {
		return refused(g, Sharded{Grads: make([]float32, 64), Counts: []int{32, 32}, Apply: apply}, "share no memory")
	})
	onRanks(t, 1, Config{}, func(g *Group) error {
		return refused(g, Sharded{Grads: make([]float32, 64), Counts: []int{64}, Apply: apply}, "one rank")
	})
}

// Ranks that do not share the same update are told, and none writes anywhere.
func TestShardedMismatch(t *testing.T) {
	for other, wants := range map[string][]string{
		"length":          {"sharded update of 64 float32", "sharded update of 48 float32"},
		"what takes part": {"gradients and parameters cut as", "float32 gradients cut as"},
		"cut":             {"gradients and parameters cut as"},
		"operation":       {"sharded update of 64", "allreduce (sum) of 4096"},
	} {
		errs := onMeshes(t, mem.NewShared(2, testArena), Config{}, func(g *Group) error {
			x, y := put(g, "arena", make([]float32, 64)), put(g, "apart", make([]float32, 64))
			s := Sharded{Grads: x, Params: y, Counts: []int{32, 32}, Apply: func(int, int, []float32) { panic("applied") }}
			if g.Rank() == 1 {
				switch other {
				case "length":
					s.Grads, s.Params, s.Counts = x[:48], y[:48], []int{32, 16}
				case "what takes part":
					s.Params = nil
				case "cut":
					s.Counts = []int{16, 48}
				case "operation":
					return AllReduce(g, put(g, "arena", make([]float32, 4096)), Sum)
				}
			}
			return StartSharded(g, s).Wait()
		})
		for rank, err := range errs {
			for _, want := range wants {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("another %s, rank %d: %v, want it to say %q", other, rank, err, want)
				}
			}
		}
	}
}

// TestPanicOfApply returns the panic of a caller's update on one rank as that rank's error, and the other ranks name it.
func TestPanicOfApply(t *testing.T) {
	leakcheck.Check(t)
	for rank, err := range onMeshes(t, mem.NewShared(3, testArena), Config{}, func(g *Group) error {
		x, y := put(g, "arena", make([]float32, 96)), put(g, "apart", make([]float32, 96))
		return StartSharded(g, Sharded{Grads: x, Params: y, Counts: []int{32, 32, 32}, Apply: func(int, int, []float32) {
			if g.Rank() == 1 {
				panic("a rule of one's own")
			}
		}}).Wait()
	}) {
		want := "collective: sharded update 0 on rank 1: panic: a rule of one's own (in "
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "sharded_test.go:") {
			t.Errorf("rank %d: %v, want %q", rank, err, want)
		}
	}
}

func TestShardedAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	const n = 4*shardBlock + 16
	onShared(t, 2, Config{}, func(g *Group) error {
		x, y := put(g, "arena", make([]float32, n)), put(g, "apart", make([]float32, n))
		s := Sharded{Grads: x, Params: y, Counts: []int{shardBlock, n - shardBlock}, Apply: func(int, int, []float32) {}}
		step := func() error { return StartSharded(g, s).Wait() }
		for range 5 {
			if err := step(); err != nil {
				return err
			}
		}
		var err error
		if per := testing.AllocsPerRun(100, func() { err = errors.Join(err, step()) }); per >= 1 && g.Rank() == 0 {
			return errors.Join(err, fmt.Errorf("%v allocations", per))
		}
		return err
	})
}
