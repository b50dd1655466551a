package simd

// floats reduces values at to at+n of the operands, with n at least 1.
func (l reduceLevel) floats(op Reduction, dst, src [][]float32, at, n int, scale float32) {
	if l == reduceAVX512 {
		reduceAll512(int(op), &dst[0], len(dst), &src[0], len(src), 4*at, n, len(dst[0])-at, scale, &rowMasks[16-n%16])
	} else {
		reduceAll2(int(op), &dst[0], len(dst), &src[0], len(src), 4*at, n, len(dst[0])-at, scale, &rowMasks[16-n%8])
	}
}
