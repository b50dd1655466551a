package collective

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// AllReduce over shared memory. With K bytes on N ranks, by size:
//
//   - operands up to 48 bytes travel in the cache line of the arrival, and every rank reduces all
//     operands: one exchange of flags.
//   - operands up to copyLimit: every rank copies its operand to a staging buffer, arrives, and
//     reduces all operands. One exchange of flags again; each rank writes 2K bytes and reads
//     (N+1)K. Operands up to privateLimit take this path if none is in an arena (a rank's part of
//     shared memory).
//   - operands in arenas are reduced in place: each rank reduces its 1/N of all operands in one
//     pass and writes the result to all. Two exchanges of flags; each rank reads K bytes and writes
//     K. No rank returns before all have written.
//   - other operands pass through staging in pieces. In each step a rank copies a piece in, reduces
//     its part of the previous piece and copies the results of the piece before out.
//
// Each path sums in the order of the ranks.

const (
	// copyLimit is the largest operand in bytes that every rank reduces whole, not a part.
	copyLimit = 4 << 10
	// privateLimit is copyLimit for operands outside of shared memory, which are copied anyway: a
	// division of the work then costs a second copy.
	privateLimit = 16 << 10
)

func (w *Work) directAllReduce() error {
	switch n := len(w.x); {
	case w.inline(n):
		if err := w.arriveInline(w.x); err != nil {
			return err
		}
		w.foldInline()
		return nil
	case n <= copyLimit:
		copy(w.g.share.stage(w.number, w.g.share.me), w.x)
		if err := w.arrive(nowhere, n); err != nil {
			return err
		}
		w.reduceCopies()
		return nil
	}
	place := w.place(w.x)
	whole := len(w.x) <= min(privateLimit, w.piece())
	switch {
	case place == nowhere && whole:
		copy(w.operandOf(w.g.share.me, 0, w.piece()), w.x)
	case place == nowhere:
		w.stageIn(0, w.piece())
	}
	if err := w.arrive(place, len(w.x)); err != nil {
		return err
	}
	switch w.placed() {
	case 0:
		if whole {
			w.reduceCopies()
			return nil
		}
		return w.reduceStaged(1)
	case len(w.g.share.ranks):
		return w.reduceInPlace()
	}
	return w.reduceStaged(0)
}

// foldInline reduces the operands in the arrival lines.
func (w *Work) foldInline() {
	s := w.g.share
	if w.elem == float32s && w.op <= Mean {
		var sum [inlineSize / 4]float32
		x := bytesview.As[float32](w.x)
		for i := range s.ranks {
			theirs := (*[inlineSize / 4]float32)(unsafe.Pointer(&s.flag(w.number, i, lineArrived).Inline))
			for j := range x {
				if i == 0 {
					sum[j] = theirs[j]
				} else {
					sum[j] += theirs[j]
				}
			}
		}
		if w.op == Mean {
			for j := range x {
				sum[j] *= 1 / float32(w.g.size)
			}
		}
		copy(x, sum[:])
		return
	}
	w.srcs = w.srcs[:0]
	for i := range s.ranks {
		w.srcs = append(w.srcs, s.flag(w.number, i, lineArrived).Inline[:len(w.x)])
	}
	w.dsts = append(w.dsts[:0], w.x)
	w.fold(w.dsts, w.srcs)
}

// reduceCopies reduces all operands in every rank, after all ranks have arrived with copies.
func (w *Work) reduceCopies() {
	s, n := w.g.share, len(w.x)
	w.srcs = w.srcs[:0]
	for i := range s.ranks {
		w.srcs = append(w.srcs, s.stage(w.number, i)[:n])
	}
	w.dsts = append(w.dsts[:0], w.x)
	w.fold(w.dsts, w.srcs)
}

// reduceInPlace reduces operands that are all in arenas, after all ranks have arrived.
func (w *Work) reduceInPlace() error {
	s := w.g.share
	first, _ := w.placeOf(0)
	lo, hi := lines(first, len(w.x), len(s.ranks), s.me)
	w.srcs = w.srcs[:0]
	for i := range s.ranks {
		off, _ := w.placeOf(i)
		w.srcs = append(w.srcs, s.arenas[i][off+lo:off+hi])
	}
	w.fold(w.srcs, w.srcs)
	return w.step(1)
}

// lines returns rank i's part [lo, hi) of n bytes from address at on. The bounds are at cache
// lines, so that no two ranks write to the same line.
func lines(at, n, ranks, i int) (lo, hi int) {
	skip := at % cacheLine
	from, to := RingChunk((skip+n+cacheLine-1)/cacheLine, ranks, i)
	return min(n, max(0, from*cacheLine-skip)), min(n, max(0, to*cacheLine-skip))
}

// reduceStaged reduces operands after all ranks have arrived, if at least one operand is outside of
// the arenas. Step t copies piece t to staging, reduces this rank's part of piece t-1, and copies
// the results of piece t-2 from staging. Staging holds two pieces of operands and two of this
// rank's results. Step t overwrites data that were last read in step t-1, which all ranks have
// finished. first is the first step: 1 if all ranks copied piece 0 before the arrival, else 0.
func (w *Work) reduceStaged(first int) error {
	piece := w.piece()
	pieces := (len(w.x) + piece - 1) / piece
	for t := first; t < pieces+2; t++ {
		if t < pieces {
			w.stageIn(t, piece)
		}
		if t > 0 && t <= pieces {
			w.reduceStage(t-1, piece)
		}
		if t > 1 {
			w.stageOut(t-2, piece)
		}
		if t < pieces+1 {
			if err := w.step(t + 1); err != nil {
				return err
			}
		}
	}
	return nil
}

// piece returns the number of bytes that reduceStaged handles per step: two pieces of operands and
// two results of 1/N, in whole cache lines, fit the staging buffer.
func (w *Work) piece() int {
	s := w.g.share
	ranks := len(s.ranks)
	return len(s.staging[0]) / 2 / (ranks + 1) &^ (cacheLine - 1) * ranks
}

// pieceOf returns piece t of the operand.
func (w *Work) pieceOf(t, piece int) []byte { return w.x[t*piece : min(len(w.x), (t+1)*piece)] }

// operandOf returns rank i's copy of piece t, and resultOf its reduced part of the piece.
func (w *Work) operandOf(i, t, piece int) []byte {
	return w.g.share.stage(w.number, i)[t%2*piece:][:piece]
}

func (w *Work) resultOf(i, t, piece int) []byte {
	part := piece / len(w.g.share.ranks)
	return w.g.share.stage(w.number, i)[2*piece+t%2*part:][:part]
}

// stageIn copies the other ranks' parts of piece t to staging.
func (w *Work) stageIn(t, piece int) {
	s, x := w.g.share, w.pieceOf(t, piece)
	lo, hi := lines(0, len(x), len(s.ranks), s.me)
	to := w.operandOf(s.me, t, piece)
	copy(to, x[:lo])
	copy(to[hi:], x[hi:])
}

// reduceStage reduces this rank's part of piece t, into x and into staging.
func (w *Work) reduceStage(t, piece int) {
	s, x := w.g.share, w.pieceOf(t, piece)
	lo, hi := lines(0, len(x), len(s.ranks), s.me)
	w.srcs = w.srcs[:0]
	for i := range s.ranks {
		if i == s.me {
			w.srcs = append(w.srcs, x[lo:hi])
		} else {
			w.srcs = append(w.srcs, w.operandOf(i, t, piece)[lo:hi])
		}
	}
	w.dsts = append(w.dsts[:0], x[lo:hi], w.resultOf(s.me, t, piece)[:hi-lo])
	w.fold(w.dsts, w.srcs)
}

// stageOut copies the other ranks' results of piece t.
func (w *Work) stageOut(t, piece int) {
	s, x := w.g.share, w.pieceOf(t, piece)
	for i := range s.ranks {
		if i != s.me {
			lo, hi := lines(0, len(x), len(s.ranks), i)
			copy(x[lo:hi], w.resultOf(i, t, piece))
		}
	}
}

// fold reduces all of src, in their order, and writes the result to each of dst.
// A destination may be a source.
func (w *Work) fold(dst, src [][]byte) {
	if len(src[0]) == 0 {
		return
	}
	k, op, scale := w.g.kernels, w.op.kernel(), float32(1)
	if w.op == Mean {
		scale = 1 / float32(w.g.size)
	}
	switch w.elem {
	case float32s:
		w.dst32, w.src32 = tableOf(w.dst32, dst), tableOf(w.src32, src)
		k.ReduceAll(op, w.dst32, w.src32, scale)
	case float16s:
		w.dst16, w.src16 = tableOf(w.dst16, dst), tableOf(w.src16, src)
		k.ReduceAllHalf(op, w.dst16, w.src16, scale)
	case bfloat16s:
		w.dst16, w.src16 = tableOf(w.dst16, dst), tableOf(w.src16, src)
		k.ReduceAllBrain(op, w.dst16, w.src16, scale)
	default:
		w.foldBlocks(dst, src)
	}
}

// tableOf returns the slices as values of T, in the memory of table.
func tableOf[T float32 | uint16](table [][]T, slices [][]byte) [][]T {
	var zero T
	table = table[:0]
	for _, p := range slices {
		table = append(table, unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(p))), len(p)/int(unsafe.Sizeof(zero))))
	}
	return table
}

// foldBlock is the size in bytes of a block of foldBlocks.
const foldBlock = 2048

// foldBlocks is fold for types without vector code.
func (w *Work) foldBlocks(dst, src [][]byte) {
	if len(w.block) == 0 {
		w.block = make([]byte, foldBlock)
	}
	for at := 0; at < len(src[0]); at += foldBlock {
		end := min(len(src[0]), at+foldBlock)
		acc := w.block[:end-at]
		w.combine(acc, src[0][at:end], src[1][at:end])
		for _, x := range src[2:] {
			w.combine(acc, acc, x[at:end])
		}
		w.average(acc)
		for _, y := range dst {
			copy(y[at:end], acc)
		}
	}
}
