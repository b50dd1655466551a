package collective

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// ReduceOp is a reduction.
type ReduceOp uint8

const (
	// Sum adds the values of all ranks.
	Sum ReduceOp = iota
	// Mean is the sum times 1/Size; floating point only. The mean of 16-bit values may be infinite
	// if their sum is too large for the type: see Float16.
	Mean
	// Min is the least value. As in Go, the minimum of NaN and a number is NaN, and -0 is below 0.
	Min
	// Max is the greatest value, with the same rules for NaN and -0.
	Max
	// Prod multiplies the values of all ranks.
	Prod
	reductions
)

// String returns the name of the operation.
func (op ReduceOp) String() string {
	if op < reductions {
		return [...]string{"sum", "mean", "min", "max", "prod"}[op]
	}
	return fmt.Sprintf("Op(%d)", uint8(op))
}

// AllReduce replaces x on every rank by the reduction of all ranks' x, which must have equal
// lengths. Cost: see docs/costs.md; with N ranks and a long slice each rank sends 2(N-1)/N of x.
// Ranks that share memory send nothing: they reduce x in place if x is in shared memory
// (transport.SharedMemory) on every rank, and copy x otherwise.
func AllReduce[T Number](g *Group, x []T, op ReduceOp) error {
	if g.share.whole(g.size) {
		if ok, err := g.share.allReduce(g, elementOf[T](), bytesview.Bytes(x), op); ok {
			return err
		}
	}
	return allReduce(g, x, op, true).Wait()
}

// StartAllReduce is AllReduce in the background: x must not be touched until Wait returns.
func StartAllReduce[T Number](g *Group, x []T, op ReduceOp) *Work { return allReduce(g, x, op, false) }

func allReduce[T Number](g *Group, x []T, op ReduceOp, blocking bool) *Work {
	w := g.newWork(kindAllReduce, elementOf[T]())
	w.x, w.op = bytesview.Bytes(x), op
	return g.startReduction(w, blocking)
}

// startReduction checks the reduction of w, then calls start.
func (g *Group) startReduction(w *Work, blocking bool) *Work {
	if w.op >= reductions {
		return w.misuse("%v is not a reduction", w.op)
	}
	if w.op == Mean && !w.elem.float() {
		return w.misuse("the mean of %v is not defined: sum, then divide as the program needs", w.elem)
	}
	return g.start(w, blocking)
}

// Broadcast replaces x on every rank by root's x. The lengths must be equal. Cost: a long slice
// travels along a chain of ranks in segments, about one transfer of x for any size of the group; a
// short one down a binomial tree, in ceil(log2 N) hops.
func Broadcast[T Number](g *Group, x []T, root int) error {
	return broadcast(g, x, root, true).Wait()
}

// StartBroadcast is Broadcast in the background: x must not be touched until Wait returns.
func StartBroadcast[T Number](g *Group, x []T, root int) *Work {
	return broadcast(g, x, root, false)
}

func broadcast[T Number](g *Group, x []T, root int, blocking bool) *Work {
	w := g.newWork(kindBroadcast, elementOf[T]())
	w.x, w.root = bytesview.Bytes(x), root
	if !g.has(root) {
		return w.wrongRoot()
	}
	return g.start(w, blocking)
}

func (g *Group) has(rank int) bool { return rank >= 0 && rank < g.size }

func (w *Work) wrongRoot() *Work {
	return w.misuse("root %d is not a rank of a group of %d", w.root, w.g.size)
}

// AllGather writes every rank's src to dst, in rank order: rank r's to
// dst[r*len(src):(r+1)*len(src)]. len(dst) must be Size x len(src), equal on all ranks; src may be
// this rank's part of dst. Cost: every rank sends (N-1)/N of dst.
func AllGather[T Number](g *Group, dst, src []T) error {
	return allGather(g, dst, src, true).Wait()
}

// StartAllGather is AllGather in the background: neither slice must be touched until Wait returns.
func StartAllGather[T Number](g *Group, dst, src []T) *Work { return allGather(g, dst, src, false) }

func allGather[T Number](g *Group, dst, src []T, blocking bool) *Work {
	w := g.newWork(kindAllGather, elementOf[T]())
	if len(dst) != g.size*len(src) {
		return w.misuse("dst holds %d values, want %d: %d ranks x %d of src", len(dst), g.size*len(src), g.size, len(src))
	}
	w.x, w.src = bytesview.Bytes(dst), bytesview.Bytes(src)
	return g.start(w, blocking)
}

// AllGatherTo is AllGather to separate slices: rank r's src is written to dst[r]. The Size slices
// of dst must have the length of src and must not overlap; src may be this rank's slice. Other
// ranks may call AllGather for the same operation. Cost: as AllGather if all ranks share memory.
// Otherwise all parts arrive in a new buffer and are copied out.
func AllGatherTo[T Number](g *Group, dst [][]T, src []T) error {
	return allGatherTo(g, dst, src, true).Wait()
}

// StartAllGatherTo is AllGatherTo in the background: the slices in dst and src must not be touched
// until Wait returns; dst itself may change.
func StartAllGatherTo[T Number](g *Group, dst [][]T, src []T) *Work {
	return allGatherTo(g, dst, src, false)
}

func allGatherTo[T Number](g *Group, dst [][]T, src []T, blocking bool) *Work {
	w := g.newWork(kindAllGather, elementOf[T]())
	if len(dst) != g.size {
		return w.misuse("dst lists %d slices, want one for each of %d ranks", len(dst), g.size)
	}
	for r, part := range dst {
		if len(part) != len(src) {
			return w.misuse("dst of rank %d holds %d values, want %d as src", r, len(part), len(src))
		}
		w.separateOuts = append(w.separateOuts, bytesview.Bytes(part))
	}
	w.src = bytesview.Bytes(src)
	return g.start(w, blocking)
}

// AllGatherV is AllGather of parts of different lengths: rank r's part, of counts[r] values, is
// written to dst from counts[0]+...+counts[r-1] on. counts has one value per rank and must be equal
// on all ranks; len(dst) is their sum, len(src) this rank's count. src may be this rank's part of
// dst. If counts are not known on all ranks, gather them first.
//
// Cost: by ring, rank r sends all of dst except rank r+1's part, in N-1 steps. If one rank has
// nearly all values, the algorithm is the chain of Broadcast.
func AllGatherV[T Number](g *Group, dst, src []T, counts []int) error {
	return allGatherV(g, dst, src, counts, true).Wait()
}

// StartAllGatherV is AllGatherV in the background: dst and src must not be touched until Wait
// returns; counts may change.
func StartAllGatherV[T Number](g *Group, dst, src []T, counts []int) *Work {
	return allGatherV(g, dst, src, counts, false)
}

func allGatherV[T Number](g *Group, dst, src []T, counts []int, blocking bool) *Work {
	w := g.newWork(kindAllGatherV, elementOf[T]())
	sum, err := w.partition(&w.ends, counts, len(dst))
	if err != nil {
		return w.misuse("dst: %w", err)
	}
	if sum != len(dst) || len(src) != counts[g.rank] {
		return w.misuse("dst holds %d values and src %d, want %d, the sum of all counts, and %d", len(dst), len(src), sum, counts[g.rank])
	}
	w.x, w.src = bytesview.Bytes(dst), bytesview.Bytes(src)
	return g.start(w, blocking)
}

// partition appends to ends where each part ends, in bytes, and returns the sum of counts. Error:
// the counts do not fit into n values.
func (w *Work) partition(ends *[]int, counts []int, n int) (sum int, err error) {
	if len(counts) != w.g.size {
		return 0, fmt.Errorf("%d counts, want one for each of %d ranks", len(counts), w.g.size)
	}
	for r, count := range counts {
		if count < 0 || count > n-sum {
			return 0, fmt.Errorf("the count of rank %d is %d: want 0 to what is left, %d of %d values", r, count, n-sum, n)
		}
		sum += count
		*ends = append(*ends, sum*w.elem.size())
	}
	return sum, nil
}

// Barrier returns when every rank has called it, in ceil(log2 N) rounds of
// empty messages (dissemination; Hensgen, Finkel and Manber 1988).
func Barrier(g *Group) error { return g.start(g.newWork(kindBarrier, uint8s), true).Wait() }

// StartBarrier is Barrier in the background.
func StartBarrier(g *Group) *Work { return g.start(g.newWork(kindBarrier, uint8s), false) }
