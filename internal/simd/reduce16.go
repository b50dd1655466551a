package simd

// format is a 16-bit representation of values, computed with as float32.
type format uint8

const (
	half  format = iota // IEEE 754 binary16
	brain               // bfloat16
)

// CombineHalf computes dst[i] = a[i] op b[i] of float16 values, in float32 and
// rounded as [Kernels.ToHalf] does. dst may be a or b.
func (k *Kernels) CombineHalf(op Reduction, dst, a, b []uint16) {
	k.reduceAll16(half, op, [][]uint16{dst}, [][]uint16{a, b}, 1)
}

// CombineBrain is CombineHalf of bfloat16 values.
func (k *Kernels) CombineBrain(op Reduction, dst, a, b []uint16) {
	k.reduceAll16(brain, op, [][]uint16{dst}, [][]uint16{a, b}, 1)
}

// ReduceAllHalf is [Kernels.ReduceAll] of float16 values. It computes in float32, with each step
// rounded, and rounds the result once, as [Kernels.ToHalf] does.
func (k *Kernels) ReduceAllHalf(op Reduction, dst, src [][]uint16, scale float32) {
	k.reduceAll16(half, op, dst, src, scale)
}

// ReduceAllBrain is ReduceAllHalf of bfloat16 values.
func (k *Kernels) ReduceAllBrain(op Reduction, dst, src [][]uint16, scale float32) {
	k.reduceAll16(brain, op, dst, src, scale)
}

func (k *Kernels) reduceAll16(f format, op Reduction, dst, src [][]uint16, scale float32) {
	n, at := checkReduce(op, dst, src), 0
	for whole := k.reduce.bulk16(n); at < whole; {
		next := reduceCut(whole-at, 2, len(dst)+len(src))
		k.reduce.reduceAll16(f, op, dst, src, at, next, scale)
		at += next
	}
	if at < n {
		reduceAll16Go(f, op, dst, src, at, n, scale)
	}
}

// bulk16 returns the number of n 16-bit values reduced by assembly.
func (l reduceLevel) bulk16(n int) int {
	switch l {
	case reduceAVX512:
		return n
	case reduceAVX2:
		return n &^ 7
	}
	return 0
}

// reduceBlock16 is small because it also reduces AVX2's remainders.
const reduceBlock16 = 64

// reduceAll16Go reduces values at to n of the operands.
func reduceAll16Go(f format, op Reduction, dst, src [][]uint16, at, n int, scale float32) {
	var sums, terms [reduceBlock16]float32
	var packed [reduceBlock16]uint16
	for ; at < n; at += reduceBlock16 {
		m := min(n-at, reduceBlock16)
		acc := sums[:m]
		f.widen(acc, src[0][at:])
		for _, x := range src[1:] {
			f.widen(terms[:m], x[at:])
			combineGo(op, acc, terms[:m])
		}
		finishReduce(acc, scale)
		f.narrow(packed[:m], acc)
		for _, y := range dst {
			copy(y[at:], packed[:m])
		}
	}
}

// widen computes the float32 of as many values as dst has.
func (f format) widen(dst []float32, src []uint16) {
	src = src[:len(dst)]
	if f == half {
		for i, h := range src {
			dst[i] = fromHalf(h)
		}
		return
	}
	for i, h := range src {
		dst[i] = fromBrain(h)
	}
}

func (f format) narrow(dst []uint16, src []float32) {
	src = src[:len(dst)]
	if f == half {
		for i, v := range src {
			dst[i] = toHalf(v)
		}
		return
	}
	for i, v := range src {
		dst[i] = toBrain(v)
	}
}
