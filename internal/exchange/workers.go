package exchange

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/simd"
)

// Sums over virtual workers. A job of V virtual workers on N ranks adds their gradients in the
// order of one binary tree over V. The bits of a sum therefore depend on V, and not on N. The left
// half of a node has the largest power of two of workers below the node's number. Rank r carries
// the workers [rV/N, (r+1)V/N). It adds the largest subtrees of its run, at most 2 log2 V, as its
// gradients become final; the ranks then add these partial sums in the order of the tree:
//
//   - one rank has the sum.
//   - two ranks with a partial sum each use the group's allreduce: one addition has no order.
//   - in shared memory each rank adds its 1/N of all partial sums where they are, and writes the
//     sum to all ranks.
//   - otherwise each rank sends its partial sums of every 1/N to the rank that adds them, and an
//     allgather distributes the sums: 2(N-1)/N K bytes sent per rank if each rank has one partial
//     sum, as by ring. (N-1)/N K more for each further partial sum.
//
// Ranks have one partial sum each if V and N are powers of two, or N is V.
//
// Selected entries of all workers travel to all ranks by an allgather, and are added in the order
// of the workers. A rank receives V-V/N payloads, where N ranks without virtual workers receive
// N-1.

// Workers are the virtual workers of a job.
type Workers struct {
	// Count is the number of virtual workers, at least one per rank.
	Count int
	// Alloc returns n zeros for partial sums, best in memory that ranks share, and Free releases
	// them. nil means Go's memory.
	Alloc func(n int) []float32
	Free  func(x []float32)
}

// WorkersOf returns the virtual workers [lo, hi) of count that a rank carries.
func WorkersOf(count, size, rank int) (lo, hi int) {
	return rank * count / size, (rank + 1) * count / size
}

// node is a node of the tree over virtual workers: the workers [lo, hi).
type node struct{ lo, hi int }

// mid returns the first worker of the right half.
func (n node) mid() int { return n.lo + 1<<(bits.Len(uint(n.hi-n.lo-1))-1) }

// siblings reports whether a and b, adjacent, are the halves of a node of the tree over count.
func siblings(a, b node, count int) bool {
	n := node{0, count}
	for n.mid() != b.lo {
		if b.lo < n.mid() {
			n.hi = n.mid()
		} else {
			n.lo = n.mid()
		}
	}
	return n == node{a.lo, b.hi}
}

// addition is a step of a sum: operand from is added to operand into, which is to its left.
type addition struct{ into, from int }

// additions returns the additions of adjacent nodes in their order, up to the nodes that the tree
// over count joins, and the nodes of the sums. join is called after each node with the number of
// additions that are possible with the nodes until then.
func additions(nodes []node, count int, join func(permitted int)) (out []addition, sums []node) {
	var at []int // operand with the sum of each of sums
	for i, n := range nodes {
		sums, at = append(sums, n), append(at, i)
		before := len(out)
		for k := len(sums) - 1; k > 0 && siblings(sums[k-1], sums[k], count); k-- {
			out = append(out, addition{at[k-1], at[k]})
			sums[k-1].hi = sums[k].hi
			sums, at = sums[:k], at[:k]
		}
		join(len(out) - before)
	}
	return out, sums
}

// workers is a rank's part of the sums over virtual workers.
type workers struct {
	Workers
	own    int               // virtual workers of this rank
	joined []int             // by own worker, the number of additions after its gradient
	sums   [][]node          // by rank, the partial sums
	parts  []compress.Sparse // selected entries of all workers, decoded
	tree   []addition        // sum of all partial sums, by rank and order
	arena  int               // values of the arena
	room   []float32         // from Alloc
	levels [][]float32       // memory of this rank's partial sums, in room
	places []int64           // by rank, offsets of gradients and room in shared memory; nil: unshared
}

func newWorkers(w Workers, size, rank int) *workers {
	out := &workers{Workers: w, parts: make([]compress.Sparse, w.Count)}
	var all []node
	for r := range size {
		var leaves []node
		lo, hi := WorkersOf(w.Count, size, r)
		for i := lo; i < hi; i++ {
			leaves = append(leaves, node{i, i + 1})
		}
		var joined []int
		_, sums := additions(leaves, w.Count, func(n int) { joined = append(joined, n) })
		if r == rank {
			out.own, out.joined = hi-lo, joined
		}
		out.sums, all = append(out.sums, sums), append(all, sums...)
	}
	out.tree, _ = additions(all, w.Count, func(int) {})
	return out
}

// depth returns the largest number of partial sums in memory.
func (w *workers) depth() (most int) {
	now := 0
	for _, n := range w.joined[:w.own-1] {
		now += 1 - n
		most = max(most, now)
	}
	return most
}

// prepare makes the memory of partial sums for an arena of gradients, and determines whether all
// ranks share it. The call is collective.
func (w *workers) prepare(g *collective.Group, grads []float32) error {
	n, alloc := (len(grads)+line-1)/line*line, w.Alloc
	if alloc == nil {
		alloc = func(n int) []float32 { return make([]float32, n) }
	}
	if size := w.depth() * n; size > 0 {
		w.room = alloc(size)
	}
	w.arena = n
	for d := range w.depth() {
		w.levels = append(w.levels, w.room[d*n:(d+1)*n])
	}
	if g.Size() == 1 {
		return nil
	}
	places := make([]int64, 2*g.Size())
	if err := collective.AllGather(g, places, []int64{collective.SharedOffset(g, grads), collective.SharedOffset(g, w.room)}); err != nil {
		return fmt.Errorf("exchange: comparing the memory of partial sums: %w", err)
	}
	for _, place := range places {
		if place < 0 {
			return nil
		}
	}
	w.places = places
	return nil
}

// close releases the memory of partial sums.
func (w *workers) close() {
	if w != nil && w.Free != nil && w.room != nil {
		w.Free(w.room)
		w.room, w.levels = nil, nil
	}
}

// partial has the state of one request's sum over virtual workers between Start and Wait.
type partial struct {
	worker, depth int                // own workers, and their partial sums in memory, until now
	vectors       []*compress.Sparse // selected entries of own workers, instead
	counts        []int
	operands      [][]float32
	sum           treeSum

	sends           []int
	in, out         []float32
	scatter, gather *collective.Work // in flight; nil: none
	bytes           int64            // sent by scatter
}

// addWorker takes the gradient of one of this rank's workers. It reports whether others follow.
func (e *GroupReducer) addWorker(h *requestState) (more bool) {
	w, p, x := e.workers, &h.partial, h.op.X
	p.worker++
	if more = p.worker < w.own; h.op.Sparse != nil {
		p.vectors = append(p.vectors[:p.worker-1], h.op.Sparse)
		if !more {
			p.worker = 0
		}
		return more
	}
	n := w.joined[p.worker-1]
	if more && n == 0 {
		copy(w.level(p.depth, h.op), x)
	}
	for range n {
		p.depth--
		if at := w.level(p.depth, h.op); more {
			e.kernels.Add(at, x)
			x = at
		} else {
			e.kernels.AddTo(x, at, x)
		}
	}
	if p.depth++; !more {
		p.worker, p.depth = 0, 0
	}
	return more
}

// level returns the memory, in the buffer of a depth, of a partial sum of op.
func (w *workers) level(depth int, op *Request) []float32 {
	return w.levels[depth][op.Lo : op.Lo+len(op.X)]
}

// simple reports whether the sum over the ranks has one addition.
func (w *workers) simple() bool { return len(w.tree) == 1 }

// startTree starts a sum with several additions over the ranks.
func (e *GroupReducer) startTree(h *requestState) {
	if e.workers.places == nil {
		h.op.Sent.Algorithm = collective.Pairwise
		h.op.Bucket.start(e.g)
		e.startScatter(h)
		e.g.For(-1, 0)
		e.enqueue(h)
		return
	}
	h.op.Bucket.start(e.g)
	if err := e.startInPlace(h); err != nil {
		h.end, h.err = time.Now(), e.fault(h.op, "tree", err)
	}
	e.g.For(-1, 0)
}

// startInPlace starts a sum in shared memory.
func (e *GroupReducer) startInPlace(h *requestState) error {
	w, p, op := e.workers, &h.partial, h.op
	p.counts, p.operands = p.counts[:0], p.operands[:0]
	for r, sums := range w.sums {
		lo, hi := lineChunk(len(op.X), e.size, r)
		p.counts = append(p.counts, hi-lo)
		for d := range sums {
			place := w.places[2*r] + 4*int64(op.Lo)
			if d < len(sums)-1 {
				place = w.places[2*r+1] + 4*int64(d*w.arena+op.Lo)
			}
			x, err := collective.SharedSlice[float32](e.g, r, place, len(op.X))
			if err != nil {
				return err
			}
			p.operands = append(p.operands, x)
		}
	}
	op.Sent.Algorithm = collective.Direct
	h.work = collective.StartSharded(e.g, collective.Sharded{Params: op.X, Counts: p.counts, Apply: func(lo, hi int, _ []float32) {
		p.sum.add(e.kernels, w.tree, op.X[lo:hi], p.operands, lo)
	}})
	return nil
}

// line is the number of values of a cache line.
const line = 16

// lineChunk is collective.RingChunk in whole cache lines.
func lineChunk(n, size, i int) (lo, hi int) {
	lo, hi = collective.RingChunk((n+line-1)/line, size, i)
	return min(n, lo*line), min(n, hi*line)
}

// startScatter sends every rank its chunk of this rank's partial sums, in the background.
func (e *GroupReducer) startScatter(h *requestState) {
	w, op, p := e.workers, h.op, &h.partial
	own := len(w.sums[e.rank])
	lo, hi := lineChunk(len(op.X), e.size, e.rank)
	p.counts, p.sends = bytesview.Sized(p.counts, e.size), bytesview.Sized(p.sends, e.size)
	received := 0
	for r, sums := range w.sums {
		from, to := lineChunk(len(op.X), e.size, r)
		p.sends[r], p.counts[r] = own*(to-from), len(sums)*(hi-lo)
		received += p.counts[r]
	}
	out := op.X
	if own > 1 {
		p.out = bytesview.Sized(p.out, own*len(op.X))
		out = p.out
		at := 0
		for r := range w.sums {
			from, to := lineChunk(len(op.X), e.size, r)
			for d := range own - 1 {
				at += copy(out[at:], w.level(d, op)[from:to])
			}
			at += copy(out[at:], op.X[from:to])
		}
	}
	p.in = bytesview.Sized(p.in, received)
	p.scatter = collective.StartAllToAllV(e.g, p.in, out, p.sends, p.counts)
}

// startGather adds this rank's chunk of all partial sums, and sends the sum to all ranks in the
// background, while the chunks of the next bucket arrive.
func (e *GroupReducer) startGather(h *requestState) (err error) {
	w, op, p := e.workers, h.op, &h.partial
	if _, p.bytes, err = p.scatter.WaitSent(); err != nil {
		return err
	}
	lo, hi := lineChunk(len(op.X), e.size, e.rank)
	p.operands = p.operands[:0]
	for at := 0; at < len(p.in); at += hi - lo {
		p.operands = append(p.operands, p.in[at:at+hi-lo])
	}
	if hi > lo {
		p.sum.add(e.kernels, w.tree, op.X[lo:hi], p.operands, 0)
	}
	for r := range w.sums {
		from, to := lineChunk(len(op.X), e.size, r)
		p.counts[r] = to - from
	}
	p.gather = collective.StartAllGatherV(e.dup, op.X, op.X[lo:hi], p.counts)
	return nil
}

// finishGather waits for the end of startGather's operation.
func (e *GroupReducer) finishGather(h *requestState) {
	end, bytes, err := h.partial.gather.WaitSent()
	h.partial.gather = nil
	if h.end, h.op.Sent.Bytes = end, h.partial.bytes+bytes; err != nil {
		h.err = e.fault(h.op, "tree", err)
	}
}

// gatherEntries sends every rank the entries of all workers, and adds them.
func (e *GroupReducer) gatherEntries(h *requestState) error {
	op, w, own := h.op, e.workers, h.partial.vectors
	e.coder.Use(op.code())
	op.Sent = Result{Algorithm: AllGather, Entries: meanEntries(own)}
	var head []int64
	for _, v := range own {
		head = append(head, int64(v.Count()), int64(e.coder.Size(v)), op.what())
	}
	heads := make([]int64, frameWords*w.Count)
	for r := range e.counts {
		lo, hi := WorkersOf(w.Count, e.size, r)
		e.counts[r] = frameWords * (hi - lo)
	}
	if err := collective.AllGatherV(e.dup, heads, head, e.counts); err != nil {
		return err
	}
	total, first := 0, 0
	for r := range e.counts {
		lo, hi := WorkersOf(w.Count, e.size, r)
		if r == e.rank {
			first = total
		}
		e.counts[r] = 0
		for i := lo; i < hi; i++ {
			f := frame{heads[frameWords*i], heads[frameWords*i+1], heads[frameWords*i+2]}
			if err := e.checkFrame(op, f, r); err != nil {
				return err
			}
			e.counts[r] += int(f.bytes)
		}
		total += e.counts[r]
	}
	e.in = bytesview.Sized(e.in, total)
	out := e.in[first : first : first+e.counts[e.rank]]
	for _, v := range own {
		var err error
		if out, err = e.coder.Encode(out, v); err != nil {
			return valueAt(err, op.Lo, v)
		}
	}
	if err := collective.AllGatherV(e.dup, e.in, out, e.counts); err != nil {
		return err
	}
	return e.addEntries(op, own, heads)
}

// meanEntries returns the mean number of entries of the vectors.
func meanEntries(vectors []*compress.Sparse) (n int) {
	for _, v := range vectors {
		n += v.Count()
	}
	return n / len(vectors)
}

// addEntries adds the entries of all workers, in their order.
func (e *GroupReducer) addEntries(op *Request, own []*compress.Sparse, heads []int64) error {
	w, at := e.workers, 0
	e.vectors = e.vectors[:0]
	for r := range e.size {
		lo, hi := WorkersOf(w.Count, e.size, r)
		for i := lo; i < hi; i++ {
			n := int(heads[frameWords*i+1])
			v := &w.parts[i]
			if r == e.rank {
				v = own[i-lo]
			} else if err := e.decode(v, e.coder, e.in[at:at+n], len(op.X), r); err != nil {
				return err
			}
			e.vectors = append(e.vectors, v)
			at += n
		}
	}
	e.sum(op.X, e.vectors)
	return nil
}

// treeSum is the working memory of a sum in the order of a tree.
type treeSum struct {
	now  [][]float32 // block of each operand, or of the sum that replaces it
	room [][]float32 // blocks of sums
}

// treeBlock is the number of values added at a time: operands and sums stay in the nearest caches.
const treeBlock = 2048

// add sets dst to the sum of operands[…][at:] by the additions. dst may be a part of an operand.
func (s *treeSum) add(k *simd.Kernels, tree []addition, dst []float32, operands [][]float32, at int) {
	for len(s.room) < len(operands) {
		s.room = append(s.room, make([]float32, treeBlock))
	}
	for len(dst) > 0 {
		n := min(len(dst), treeBlock)
		s.now = s.now[:0]
		for _, x := range operands {
			s.now = append(s.now, x[at:at+n])
		}
		for i, a := range tree {
			to := s.room[a.into][:n]
			if i == len(tree)-1 {
				to = dst[:n]
			}
			k.AddTo(to, s.now[a.into], s.now[a.from])
			s.now[a.into] = to
		}
		dst, at = dst[n:], at+n
	}
}
