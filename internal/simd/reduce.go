package simd

import (
	"fmt"
	"math"
)

// Reduction is a collective's operation on the values of several ranks. Minimum and maximum are as
// in Go: NaN if an operand is, and -0 is less than 0.
//
// Any NaN result has the bits 0x7fc00000 (0x7e00 of float16, 0x7fc0 of bfloat16). a op b therefore
// has the same bits as b op a, and ranks that reduce the same two values agree in either order.
type Reduction uint8

// The reductions.
const (
	ReduceSum Reduction = iota
	ReduceMin
	ReduceMax
	ReduceProd
)

// String returns "sum", "min", "max" or "product".
func (op Reduction) String() string {
	if op > ReduceProd {
		return fmt.Sprintf("Reduction(%d)", uint8(op))
	}
	return [...]string{"sum", "min", "max", "product"}[op]
}

// reduceLevel selects the assembly of reductions. Its functions are called by name and not through
// variables, so that tables of operands need not be on the heap.
type reduceLevel uint8

const (
	reducePortable reduceLevel = iota
	reduceAVX2
	reduceAVX512
)

// callReduced limits the bytes of an assembly call, over all operands: 256 KiB, some tens of
// microseconds even from memory.
const callReduced = 256 << 10

// reduceCut returns the number of n values of size bytes that the next assembly call takes of each
// operand, in whole iterations of the kernels.
func reduceCut(n, size, operands int) int {
	const turn = 64
	if n*size*operands <= callReduced {
		return n // without a division, because short calls are frequent
	}
	return min(n, max(callReduced/(operands*size*turn), 1)*turn)
}

// Combine computes dst[i] = a[i] op b[i]. dst may be a or b.
func (k *Kernels) Combine(op Reduction, dst, a, b []float32) {
	k.ReduceAll(op, [][]float32{dst}, [][]float32{a, b}, 1)
}

// ReduceAll computes, in a single pass over memory,
//
//	dst[j][i] = (src[0][i] op src[1][i] op ...) * scale
//
// for every j, in this order, with each step rounded. All operands have equal length, with at least
// one source. A destination may be a source, but must not overlap one otherwise.
func (k *Kernels) ReduceAll(op Reduction, dst, src [][]float32, scale float32) {
	n, at := checkReduce(op, dst, src), 0
	if k.reduce == reducePortable {
		reduceAllGo(op, dst, src, n, scale)
		return
	}
	for at < n {
		next := reduceCut(n-at, 4, len(dst)+len(src))
		k.reduce.reduceAll(op, dst, src, at, next, scale)
		at += next
	}
}

// checkReduce returns the length of all operands, 0 without destinations.
func checkReduce[T any](op Reduction, dst, src [][]T) int {
	if op > ReduceProd || len(src) == 0 {
		panic(fmt.Sprintf("simd: ReduceAll: %v of %d sources", op, len(src)))
	}
	n := len(src[0])
	for _, x := range src {
		if len(x) != n {
			sameLength("ReduceAll", n, len(x))
		}
	}
	for _, x := range dst {
		if len(x) != n {
			sameLength("ReduceAll", n, len(x))
		}
	}
	if len(dst) == 0 {
		return 0
	}
	return n
}

// reduceBlock is the number of values in a block of the portable reduction.
const reduceBlock = 256

// reduceAllGo reduces n values of the operands.
func reduceAllGo(op Reduction, dst, src [][]float32, n int, scale float32) {
	var block [reduceBlock]float32
	for at := 0; at < n; at += reduceBlock {
		acc := block[:min(n-at, reduceBlock)]
		copy(acc, src[0][at:])
		for _, x := range src[1:] {
			combineGo(op, acc, x[at:])
		}
		finishReduce(acc, scale)
		for _, y := range dst {
			copy(y[at:], acc)
		}
	}
}

// combineGo does acc[i] = acc[i] op x[i].
func combineGo(op Reduction, acc, x []float32) {
	x = x[:len(acc)]
	switch op {
	case ReduceSum:
		for i, v := range x {
			acc[i] += v
		}
	case ReduceMin:
		for i, v := range x {
			acc[i] = min(acc[i], v)
		}
	case ReduceMax:
		for i, v := range x {
			acc[i] = max(acc[i], v)
		}
	case ReduceProd:
		for i, v := range x {
			acc[i] *= v
		}
	}
}

// finishReduce scales and canonicalises NaNs.
func finishReduce(acc []float32, scale float32) {
	for i, v := range acc {
		if v *= scale; v != v {
			v = math.Float32frombits(0x7fc00000)
		}
		acc[i] = v
	}
}
