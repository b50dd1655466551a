package nn

import (
	"sync/atomic"
)

// blocksJob computes the gradient of a dense layer's weights if threads share the rows of products.
// The gradient is a sum over rows. Each thread sums blocks of its own rows and reads no data that
// another core has written, except sums of blocks. Added in order, the sums have the bits of a
// single product.
type blocksJob struct {
	o      *denseOp
	sums   []float32 // weights' gradients of all blocks but the first
	blocks int
	pieces int          // pieces of each block, by rows of the weights, for more threads
	run    int          // minimum blocks of a thread
	biased atomic.Int32 // blocks already in the bias's gradient, added in order
	adding bool         // second half
	parts  int          // parts of the second half
}

// blockRows is the least number of rows of weights for which it is worth packing the input's block
// for a piece.
const blockRows = 64

// byBlocks reports whether threads share blocks of the sum, because the sums of blocks, which they
// read from each other's memory, are less than half as large as the rows.
func (o *denseOp) byBlocks(t *Tape) bool {
	if !o.byRows(t) {
		return false
	}
	n, out, in := o.x.Shape[0], o.l.W.Shape[0], o.l.W.Shape[1]
	blocks, threads := t.k.Blocks(n), t.pool.threads()
	return blocks > 1 && out >= blockRows*pieces(blocks, threads) && 4*(blocks-1)*out*in < n*(out+2*in)
}

// pieces returns the number of pieces per block that gives all threads the same number.
func pieces(blocks, threads int) int {
	a, b := blocks, threads
	for b != 0 {
		a, b = b, a%b
	}
	return threads / a
}

// compute computes the gradients of o's parameters.
func (j *blocksJob) compute(t *Tape, o *denseOp) {
	threads := t.pool.threads()
	j.o, j.blocks, j.adding = o, t.k.Blocks(o.x.Shape[0]), false
	j.pieces, j.run = pieces(j.blocks, threads), max(1, j.blocks/threads)
	j.sums = t.grads.take((j.blocks - 1) * len(o.l.W.Data))
	j.biased.Store(0)
	t.pool.run(j, j.blocks*j.pieces)
	j.adding, j.parts = true, threads
	t.pool.run(j, j.parts)
	t.grads.give(&j.sums)
	j.o = nil
}

func (j *blocksJob) part(w *worker, i int) {
	if j.adding {
		j.add(w, i)
		return
	}
	block, piece := i/j.pieces, i%j.pieces
	if i == 0 {
		j.bias(w, j.run)
	}
	j.product(w, block, piece)
	if last := block + 1; last > j.run && piece == j.pieces-1 && (last%j.run == 0 || last == j.blocks) {
		if first := (block / j.run) * j.run; int(j.biased.Load()) == first {
			j.bias(w, last)
		}
	}
}

// product computes a piece of a block's sums.
func (j *blocksJob) product(w *worker, block, piece int) {
	o := j.o
	n, out, in := o.x.Shape[0], o.l.W.Shape[0], o.l.W.Shape[1]
	from, to := w.k.Block(n, block)
	lo, hi := out*piece/j.pieces, out*(piece+1)/j.pieces
	dst := o.l.W.Grad
	if block > 0 {
		dst = j.sums[(block-1)*out*in:]
	}
	w.k.Gemm(&w.gemm, true, false, hi-lo, in, to-from, o.y.grad[from*out+lo:], out, o.x.Data[from*in:], in, block == 0 && o.l.W.touched, dst[lo*in:], in)
}

// bias adds the rows of blocks 0 to before-1 to the bias's gradient.
func (j *blocksJob) bias(w *worker, before int) {
	j.o.biasGrad(w, int(j.biased.Load()), before, 0, j.o.l.W.Shape[0])
	j.biased.Store(int32(before))
}

// add sums a part of the blocks, and adds the remaining columns of the bias's gradient.
func (j *blocksJob) add(w *worker, i int) {
	dst := j.o.l.W.Grad
	lo, hi := spanOf(len(dst), i, j.parts)
	for at := 0; at < len(j.sums); at += len(dst) {
		w.k.Add(dst[lo:hi], j.sums[at+lo:at+hi])
	}
	lo, hi = spanOf(j.o.l.W.Shape[0], i, j.parts)
	j.o.biasGrad(w, int(j.biased.Load()), j.blocks, lo, hi)
}
