package collective

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

const testArena = 8 << 20

// onShared is onRanks where all ranks share memory.
func onShared(t testing.TB, n int, cfg Config, body func(g *Group) error) {
	t.Helper()
	for r, err := range onMeshes(t, mem.NewShared(n, testArena), cfg, body) {
		if err != nil {
			t.Errorf("rank %d of %d: %v", r, n, err)
		}
	}
}

// inRankOrder is the definition of a direct reduction.
func inRankOrder[T Number](n, size int, op ReduceOp, of func(rank, i int) T) []T {
	out := make([]T, n)
	for i := range out {
		acc := of(0, i)
		for r := 1; r < size; r++ {
			switch v := of(r, i); op {
			case Min:
				acc = min(acc, v)
			case Max:
				acc = max(acc, v)
			case Prod:
				acc *= v
			default:
				acc += v
			}
		}
		if op == Mean {
			acc = T(float64(acc) * float64(T(1)/T(size)))
		}
		out[i] = acc
	}
	return out
}

// put returns a copy of x where a case wants it: in the arena, at an offset that
// differs from rank to rank if it is to be mixed, or in ordinary memory.
func put[T Number](g *Group, where string, x []T) []T {
	const room = testArena / 4
	if g.share == nil { // the mesh had ended before the group was made
		return append([]T(nil), x...)
	}
	arena := g.share.windows.Arena()
	switch {
	case where == "arena":
		arena = arena[64:]
	case where == "apart": // at an offset of the rank's own
		arena = arena[room+g.Rank()*4096+g.Rank()%3*16:]
	case where == "mixed" && g.Rank()%2 == 0:
		arena = arena[2*room+g.Rank()*8:]
	default:
		return append([]T(nil), x...)
	}
	p := bytesview.As[T](arena[:len(bytesview.Bytes(x))])
	copy(p, x)
	return p
}

var places = []string{"arena", "apart", "mixed", "private"}

func numbers[T Number](n int, of func(i int) T) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = of(i)
	}
	return x
}

// directCases reduces values of one type in all ways.
func directCases[T Number](g *Group, lengths []int) error {
	of := func(rank, i int) T { return T((rank*31+i*7)%23+1) / 3 }
	for _, n := range lengths {
		for op := range reductions {
			if op == Mean && !elementOf[T]().float() {
				continue
			}
			want := inRankOrder(n, g.Size(), op, of)
			for _, where := range places {
				x := put(g, where, numbers(n, func(i int) T { return of(g.Rank(), i) }))
				if err := AllReduce(g, x, op); err != nil {
					return err
				}
				if err := same(fmt.Sprintf("%v of %d %T, %s", op, n, x, where), x, want); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// directRanks are how many ranks the tests of all operations have.
func directRanks() []int {
	if raceDetector {
		return []int{2, 5}
	}
	return []int{2, 3, 4, 5, 6, 7, 8, 9}
}

// Every rank gets the bits of the definition, wherever the operands lie.
func TestDirectAllReduceBits(t *testing.T) {
	for _, size := range directRanks() {
		onShared(t, size, Config{}, func(g *Group) error {
			return errors.Join(
				directCases[float32](g, []int{0, 1, 2, 11, 12, 13, 100, 1023, 1024, 1025, 5001}),
				directCases[float64](g, []int{0, 1, 6, 7, 511, 513, 999}),
				directCases[int32](g, []int{0, 12, 13, 2001}),
				directCases[int64](g, []int{1, 6, 7, 1001}),
				directCases[uint8](g, []int{1, 47, 48, 49, 64, 4095, 4097, 9999}),
			)
		})
	}
}

// Operands of several pieces of staging.
func TestDirectLargeOperands(t *testing.T) {
	for _, size := range []int{2, 3} {
		onShared(t, size, Config{}, func(g *Group) error {
			return directCases[float32](g, []int{40000, 130001})
		})
	}
}

// NaNs are the same on all ranks, whichever of them came from where.
func TestDirectNaN(t *testing.T) {
	nan := math.Float32frombits
	onShared(t, 3, Config{}, func(g *Group) error {
		for _, n := range []int{3, 100, 2000} {
			for op := range reductions {
				x := numbers(n, func(i int) float32 {
					if i%3 == g.Rank() {
						return nan(0x7fc00001 + uint32(g.Rank()))
					}
					return 1
				})
				if err := AllReduce(g, x, op); err != nil {
					return err
				}
				all := make([]int32, 3*n)
				bits := numbers(n, func(i int) int32 { return int32(math.Float32bits(x[i])) })
				if err := AllGather(g, all, bits); err != nil {
					return err
				}
				for r := range 3 {
					if err := same(fmt.Sprintf("%v of %d, rank %d against %d", op, n, g.Rank(), r), all[r*n:][:n], bits); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

func TestLinesCoverAll(t *testing.T) {
	for range 5000 {
		at, n, ranks := rand.IntN(200), rand.IntN(2000)*rand.IntN(2), 1+rand.IntN(9)
		end := 0
		for i := range ranks {
			lo, hi := lines(at, n, ranks, i)
			if lo != end || hi < lo || hi > n || hi < n && (at+hi)%cacheLine != 0 {
				t.Fatalf("rank %d of %d has %d to %d of %d bytes at %d, the one before ends at %d", i, ranks, lo, hi, n, at, end)
			}
			end = hi
		}
		if end != n {
			t.Fatalf("%d bytes at %d for %d ranks: %d are covered", n, at, ranks, end)
		}
	}
}

// The summary of a signature holds all of it if the operand is short.
func TestSummaryHoldsSignature(t *testing.T) {
	for k := range kindSend { // what two ranks do is never direct
		w := &Work{operands: operands{kind: k, elem: elements - 1, op: reductions - 1, algorithm: byDirect, root: 1000, x: make([]byte, 48)}}
		if sig := w.signature(); signatureOf(sig.summary(true)) != sig {
			t.Errorf("%v became %v", sig, signatureOf(sig.summary(true)))
		}
	}
}

// Ranks that start different operations are told which, on both sides, and no
// sum comes out.
// It holds invariant[signed-operations].
func TestDirectMismatch(t *testing.T) {
	type start func(g *Group) error
	sum := func(n int, op ReduceOp) start {
		return func(g *Group) error { return AllReduce(g, make([]float32, n), op) }
	}
	floats64 := func(g *Group) error { return AllReduce(g, make([]float64, 5), Sum) }
	for name, pair := range map[string][2]start{
		"length":  {sum(5000, Sum), sum(5001, Sum)},
		"short":   {sum(5, Sum), sum(6, Sum)},
		"ways":    {sum(12, Sum), sum(13, Sum)},
		"copies":  {sum(200, Sum), sum(300, Sum)},
		"op":      {sum(5, Sum), sum(5, Max)},
		"op long": {sum(5000, Sum), sum(5000, Max)},
		"type":    {sum(5, Sum), floats64},
	} {
		errs := onMeshes(t, mem.NewShared(3, testArena), Config{}, func(g *Group) error {
			if err := AllReduce(g, make([]float32, 3), Sum); err != nil {
				return err
			}
			first := pair[g.Rank()/2](g)
			if later := AllReduce(g, make([]float32, 1), Sum); later == nil {
				return errors.New("the group works on")
			}
			return first
		})
		for r, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "all ranks must start the same operations") {
				t.Errorf("%s: rank %d: %v", name, r, err)
			}
		}
	}
}

// Two groups of different ranks over one mesh, and a third of all, do not
// disturb each other.
func TestDirectGroups(t *testing.T) {
	meshes := mem.NewShared(5, testArena)
	onEach(t, meshes, func(m transport.Mesh) error {
		members := [][]int{{4, 0, 2}, {3, 1}}[m.Rank()%2]
		half, err := New(m, Config{Ranks: members, ID: 1})
		if err != nil {
			return err
		}
		defer half.Close()
		all, err := New(m, Config{ID: 7})
		if err != nil {
			return err
		}
		defer all.Close()
		for round := range 200 {
			n := 1 + round*13
			w := StartAllReduce(all, filled(all.Rank(), n), Sum)
			x := put(half, places[round%3], filled(half.Rank(), n))
			if err := AllReduce(half, x, Sum); err != nil {
				return err
			}
			if err := same("half", x, inRankOrder(n, half.Size(), Sum, operand)); err != nil {
				return err
			}
			if err := w.Wait(); err != nil {
				return err
			}
		}
		return Barrier(all)
	})
}

// A group beyond those that Control has room for goes by messages; one that is
// told to be direct is refused.
func TestDirectWithoutMemory(t *testing.T) {
	onShared(t, 2, Config{ID: shareGroups}, func(g *Group) error {
		x := []float32{1, 2}
		return errors.Join(AllReduce(g, x, Sum), same("sum", x, []float32{2, 4}))
	})
	if _, err := New(mem.New(2)[0], Config{Algorithm: Direct}); err == nil || !strings.Contains(err.Error(), "share memory") {
		t.Errorf("direct without shared memory: %v", err)
	}
	if g, err := New(mem.NewShared(2, testArena)[0], Config{Algorithm: Ring}); err != nil || g.method(kindAllReduce, 4) != byRing {
		t.Errorf("a ring over shared memory: %v", err)
	}
}

// The memory of a mesh that is closed or aborted may be gone: a group made over it
// does not touch it, and fails.
func TestDirectOverEndedMesh(t *testing.T) {
	for name, end := range map[string]func(m transport.Mesh){
		"closed":  func(m transport.Mesh) { m.Close() },
		"aborted": func(m transport.Mesh) { m.Abort(errors.New("out of paper")); m.Close() },
	} {
		meshes := mem.NewShared(2, testArena)
		for _, m := range meshes {
			end(m)
		}
		g, err := New(meshes[0], Config{})
		if err != nil || g.share != nil {
			t.Fatalf("%s: %v, shares memory: %v", name, err, g.share != nil)
		}
		if err := AllReduce(g, make([]float32, 1), Sum); err == nil {
			t.Errorf("%s: an allreduce without a fault", name)
		}
		g.Close()
	}
}

// onEach runs body as every rank and closes the meshes.
func onEach(t *testing.T, meshes []transport.Mesh, body func(m transport.Mesh) error) {
	t.Helper()
	errs := make(chan error)
	for _, m := range meshes {
		go func() { errs <- body(m) }()
	}
	for range meshes {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	for _, m := range meshes {
		m.Close()
	}
}

// Every operation gives what its definition says, on every type, from and to
// ordinary memory and arenas, with lengths that go in a line, are copied whole,
// and take several rounds.
func TestDirectEverything(t *testing.T) {
	for _, size := range directRanks() {
		lengths := []int{0, 1, size - 1, 37, 150 + size, 2003}
		if size <= 3 {
			lengths = append(lengths, 90001)
		}
		onShared(t, size, Config{}, func(g *Group) error {
			rng := rand.New(rand.NewPCG(uint64(g.Rank()), 3))
			err := errors.Join((&trial[float32]{g: g, rng: rng}).all(lengths), (&trial[uint8]{g: g, rng: rng}).all(lengths[:6]))
			if size == 5 { // the other types' kernels do not depend on the number of ranks
				err = errors.Join(err, (&trial[float64]{g: g, rng: rng}).all(lengths), (&trial[int32]{g: g, rng: rng}).all(lengths), (&trial[int64]{g: g, rng: rng}).all(lengths))
			}
			return err
		})
	}
}

// What an operation in shared memory is about is counted once on each rank, whether it takes the short way or not; what is received is not.
func TestCarried(t *testing.T) {
	onShared(t, 2, Config{}, func(g *Group) error {
		w := g.share.windows
		for i, values := range []int{8, 100_000} {
			before := w.BytesCarried.Load()
			if err := AllReduce(g, make([]float32, values), Sum); err != nil {
				return err
			}
			if got := w.BytesCarried.Load() - before; got != int64(4*values) {
				return fmt.Errorf("operation %d carried %d bytes, want those of %d values", i, got, values)
			}
		}
		before := w.BytesCarried.Load()
		x := make([]float32, 1000)
		var err error
		if g.rank == 0 {
			err = Send(g, x, 1)
		} else {
			err = Receive(g, x, 0)
		}
		if want := int64(4000 * (1 - g.rank)); err == nil && w.BytesCarried.Load()-before != want {
			err = fmt.Errorf("a message carried %d bytes, want %d", w.BytesCarried.Load()-before, want)
		}
		return err
	})
}
