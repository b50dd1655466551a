package exchange

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// treeOf is the naive twin: one process has the gradients of all virtual workers.
func treeOf(grads [][]float32) []float32 {
	if len(grads) == 1 {
		return grads[0]
	}
	half := 1
	for 2*half < len(grads) {
		half *= 2
	}
	left, right := treeOf(grads[:half]), treeOf(grads[half:])
	out := make([]float32, len(left))
	for i := range out {
		out[i] = left[i] + right[i]
	}
	return out
}

// workersRun sums two buckets in flight, in several steps, and returns the bytes that all ranks
// sent for the larger one.
func workersRun(t *testing.T, count, size int, shared bool, grads [][]float32) (sent int64) {
	t.Helper()
	meshes := mem.New(size)
	if shared {
		meshes = mem.NewShared(size, 8<<20)
	}
	n, cut := len(grads[0]), 1040
	want := treeOf(grads)
	var total atomic.Int64
	// Every rank makes its memory first: the arena belongs to the reducer's allocator.
	alloc := make([]func(int) []float32, size)
	for r, m := range meshes {
		if w := transport.SharedMemoryOf(m); w != nil {
			alloc[r] = func(n int) []float32 { return bytesview.As[float32](w.Alloc(4 * n)) }
		}
	}
	errs := onMeshes(t, meshes, Config{Workers: &Workers{Count: count}}, func(e *GroupReducer, rank int) error {
		e.workers.Alloc = alloc[rank]
		x := make([]float32, n)
		if alloc[rank] != nil {
			x = alloc[rank](n)
		}
		if err := e.Prepare(x); err != nil {
			return err
		}
		if shared && size > 1 && e.workers.places == nil {
			return fmt.Errorf("the partial sums are not in shared memory")
		}
		ops := []*Request{{X: x[:cut]}, {X: x[cut:], Lo: cut}}
		lo, hi := WorkersOf(count, size, rank)
		for step := range 3 {
			for _, g := range grads[lo:hi] {
				for _, op := range ops {
					copy(op.X, g[op.Lo:])
					e.Start(op)
				}
			}
			for _, op := range ops {
				if _, err := e.Wait(op); err != nil {
					return err
				}
			}
			if err := sameBits(fmt.Sprintf("step %d", step), x, want); err != nil {
				return err
			}
		}
		total.Add(ops[1].Sent.Bytes)
		return nil
	})
	for r, err := range errs {
		if err != nil {
			t.Fatalf("%d workers on %d ranks, shared %v, rank %d: %v", count, size, shared, r, err)
		}
	}
	return total.Load()
}

// Sums over virtual workers have the bits of the naive tree for any number of ranks, and as many
// bytes as promised.
func TestWorkersHaveTheBitsOfTheTree(t *testing.T) {
	for count := 1; count <= 9; count++ {
		rng := rand.New(rand.NewPCG(uint64(count), 1))
		grads := make([][]float32, count)
		for i := range grads {
			grads[i] = make([]float32, 6000)
			for k := range grads[i] {
				grads[i][k] = float32(rng.NormFloat64())
			}
		}
		for size := 1; size <= count; size++ {
			if sent := workersRun(t, count, size, true, grads); sent != 0 {
				t.Errorf("%d workers on %d ranks that share memory sent %d bytes", count, size, sent)
			}
			bytes, want := int64(4*(6000-1040)), int64(0)
			for r := range size {
				lo, hi := lineChunk(6000-1040, size, r)
				want += int64(len(newWorkers(Workers{Count: count}, size, r).sums[r])) * (bytes - 4*int64(hi-lo))
			}
			want += int64(size-1) * bytes
			if sent := workersRun(t, count, size, false, grads); sent != want {
				t.Errorf("%d workers on %d ranks sent %d bytes, want %d", count, size, sent, want)
			}
		}
	}
}

// Ranks carry consecutive workers, evenly, and have few partial sums, one each where V and N are
// powers of two.
func TestWorkersOfRanks(t *testing.T) {
	for count := 1; count <= 70; count++ {
		for size := 1; size <= count; size++ {
			next := 0
			for r := range size {
				lo, hi := WorkersOf(count, size, r)
				if lo != next || hi-lo < count/size || hi-lo > (count+size-1)/size {
					t.Fatalf("rank %d of %d carries [%d, %d) of %d", r, size, lo, hi, count)
				}
				next = hi
			}
			w := newWorkers(Workers{Count: count}, size, 0)
			for r, sums := range w.sums {
				if len(sums) > 12 || count&(count-1) == 0 && size&(size-1) == 0 && len(sums) != 1 || size == count && len(sums) != 1 {
					t.Errorf("rank %d of %d has %d partial sums of %d workers", r, size, len(sums), count)
				}
			}
			if next != count || len(w.tree) != len(slices.Concat(w.sums...))-1 {
				t.Errorf("%d ranks carry %d of %d workers, with %d additions", size, next, count, len(w.tree))
			}
		}
	}
}
