package collective

import "github.com/ringo-ml/ringo/internal/bytesview"

// Operations on parts, one per rank.

// ReduceScatter reduces src over all ranks and writes part r of the result, of len(dst) values, to
// dst of rank r. len(src) must be Size x len(dst), equal on all ranks. src is only read; dst may be
// this rank's part of src. Cost: every rank sends (N-1)/N of src.
func ReduceScatter[T Number](g *Group, dst, src []T, op ReduceOp) error {
	return reduceScatter(g, dst, src, op, true).Wait()
}

// StartReduceScatter is ReduceScatter in the background: neither slice must be
// touched until Wait returns.
func StartReduceScatter[T Number](g *Group, dst, src []T, op ReduceOp) *Work {
	return reduceScatter(g, dst, src, op, false)
}

func reduceScatter[T Number](g *Group, dst, src []T, op ReduceOp, blocking bool) *Work {
	w := g.newWork(kindReduceScatter, elementOf[T]())
	if len(src) != g.size*len(dst) {
		return w.misuse("src holds %d values, want %d: %d ranks x %d of dst", len(src), g.size*len(dst), g.size, len(dst))
	}
	w.x, w.dst, w.op = bytesview.Bytes(src), bytesview.Bytes(dst), op
	return g.startReduction(w, blocking)
}

// Reduce replaces x on root by the reduction of all ranks' x, which must have equal lengths and is
// only read on the other ranks. Cost: a short x travels up a binomial tree; a long x along a chain:
// every rank sends x once.
func Reduce[T Number](g *Group, x []T, op ReduceOp, root int) error {
	return reduce(g, x, op, root, true).Wait()
}

// StartReduce is Reduce in the background: do not touch x until Wait returns.
func StartReduce[T Number](g *Group, x []T, op ReduceOp, root int) *Work {
	return reduce(g, x, op, root, false)
}

func reduce[T Number](g *Group, x []T, op ReduceOp, root int, blocking bool) *Work {
	w := g.newWork(kindReduce, elementOf[T]())
	w.x, w.op, w.root = bytesview.Bytes(x), op, root
	if !g.has(root) {
		return w.wrongRoot()
	}
	return g.startReduction(w, blocking)
}

// Gather writes every rank's src, of equal lengths, to root's dst in rank order. On the root
// len(dst) must be Size x len(src), and src may be the root's part of dst; on the other ranks dst
// is not used and may be nil. Cost: the root receives (N-1)/N of dst.
func Gather[T Number](g *Group, dst, src []T, root int) error {
	return gather(g, dst, src, root, true).Wait()
}

// StartGather is Gather in the background: do not touch the slices until Wait returns.
func StartGather[T Number](g *Group, dst, src []T, root int) *Work {
	return gather(g, dst, src, root, false)
}

func gather[T Number](g *Group, dst, src []T, root int, blocking bool) *Work {
	w := g.newWork(kindGather, elementOf[T]())
	w.src, w.root = bytesview.Bytes(src), root
	if !g.has(root) {
		return w.wrongRoot()
	}
	if g.rank == root {
		if len(dst) != g.size*len(src) {
			return w.misuse("dst holds %d values, want %d: %d ranks x %d of src", len(dst), g.size*len(src), g.size, len(src))
		}
		w.x = bytesview.Bytes(dst)
	}
	return g.start(w, blocking)
}

// Scatter writes part r of root's src, of len(dst) values, to dst of rank r. On the root len(src)
// must be Size x len(dst), and dst may be the root's part of src; on the other ranks src is not
// used and may be nil. Cost: the root sends (N-1)/N of src.
func Scatter[T Number](g *Group, dst, src []T, root int) error {
	return scatter(g, dst, src, root, true).Wait()
}

// StartScatter is Scatter in the background: neither slice must be touched until Wait returns.
func StartScatter[T Number](g *Group, dst, src []T, root int) *Work {
	return scatter(g, dst, src, root, false)
}

func scatter[T Number](g *Group, dst, src []T, root int, blocking bool) *Work {
	w := g.newWork(kindScatter, elementOf[T]())
	w.dst, w.root = bytesview.Bytes(dst), root
	if !g.has(root) {
		return w.wrongRoot()
	}
	if g.rank == root {
		if len(src) != g.size*len(dst) {
			return w.misuse("src holds %d values, want %d: %d ranks x %d of dst", len(src), g.size*len(dst), g.size, len(dst))
		}
		w.x = bytesview.Bytes(src)
	}
	return g.start(w, blocking)
}

// AllToAll sends part r of src to rank r, as this rank's part of dst there. Both slices have Size
// parts of equal lengths and must not overlap. Cost: every rank sends (N-1)/N of src.
func AllToAll[T Number](g *Group, dst, src []T) error { return allToAll(g, dst, src, true).Wait() }

// StartAllToAll is AllToAll in the background: neither slice must be touched until Wait returns.
func StartAllToAll[T Number](g *Group, dst, src []T) *Work { return allToAll(g, dst, src, false) }

func allToAll[T Number](g *Group, dst, src []T, blocking bool) *Work {
	w := g.newWork(kindAllToAll, elementOf[T]())
	if len(src)%g.size != 0 || len(dst) != len(src) {
		return w.misuse("src holds %d values and dst %d, want equal lengths that %d ranks divide", len(src), len(dst), g.size)
	}
	w.x, w.dst = bytesview.Bytes(src), bytesview.Bytes(dst)
	return g.start(w, blocking)
}

// AllToAllV is AllToAll of parts of different lengths: the first sendCounts[0] values of src go to
// rank 0, the next sendCounts[1] to rank 1, and dst begins with recvCounts[0] values of rank 0. For
// each pair of ranks, the sender and the receiver must pass the same count.
func AllToAllV[T Number](g *Group, dst, src []T, sendCounts, recvCounts []int) error {
	return allToAllV(g, dst, src, sendCounts, recvCounts, true).Wait()
}

// StartAllToAllV is AllToAllV in the background: dst and src must not be touched until Wait
// returns; the counts may change.
func StartAllToAllV[T Number](g *Group, dst, src []T, sendCounts, recvCounts []int) *Work {
	return allToAllV(g, dst, src, sendCounts, recvCounts, false)
}

func allToAllV[T Number](g *Group, dst, src []T, sendCounts, recvCounts []int, blocking bool) *Work {
	w := g.newWork(kindAllToAllV, elementOf[T]())
	out, err := w.partition(&w.outs, sendCounts, len(src))
	if err != nil {
		return w.misuse("src: %w", err)
	}
	in, err := w.partition(&w.ends, recvCounts, len(dst))
	if err != nil {
		return w.misuse("dst: %w", err)
	}
	if in != len(dst) || out != len(src) || sendCounts[g.rank] != recvCounts[g.rank] {
		return w.misuse("src holds %d values and dst %d, want %d and %d, the sums of the counts; this rank sends itself %d and receives %d",
			len(src), len(dst), out, in, sendCounts[g.rank], recvCounts[g.rank])
	}
	w.x, w.dst = bytesview.Bytes(src), bytesview.Bytes(dst)
	return g.start(w, blocking)
}
