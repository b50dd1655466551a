package simd

// reduceAll reduces values at to at+n of the operands, with n at least 1, without checks.
func (l reduceLevel) reduceAll(op Reduction, dst, src [][]float32, at, n int, scale float32) {
	left := len(dst[0]) - at
	if l == reduceAVX512 {
		reduceAll512(int(op), &dst[0], len(dst), &src[0], len(src), 4*at, n, left, scale, &rowMasks[16-n%16])
	} else {
		reduceAll2(int(op), &dst[0], len(dst), &src[0], len(src), 4*at, n, left, scale, &rowMasks[16-n%8])
	}
}

// reduceAll16 is reduceAll of a 16-bit format. AVX2 requires whole vectors.
func (l reduceLevel) reduceAll16(f format, op Reduction, dst, src [][]uint16, at, n int, scale float32) {
	left, mask := len(dst[0])-at, &rowMasks[16-n%16]
	switch {
	case l == reduceAVX512 && f == half:
		reduceAllHalf512(int(op), &dst[0], len(dst), &src[0], len(src), 2*at, n, left, scale, mask)
	case l == reduceAVX512:
		reduceAllBrain512(int(op), &dst[0], len(dst), &src[0], len(src), 2*at, n, left, scale, mask)
	case f == half:
		reduceAllHalf2(int(op), &dst[0], len(dst), &src[0], len(src), 2*at, n, left, scale, nil)
	default:
		reduceAllBrain2(int(op), &dst[0], len(dst), &src[0], len(src), 2*at, n, left, scale, nil)
	}
}

var half512 = halfLevel{fromHalf: fromHalf512, fromBrain: fromBrain512, toHalf: toHalf512, toBrain: toBrain512}

var half2 = halfLevel{fromHalf: fromHalf2, fromBrain: fromBrain2, toHalf: toHalf2, toBrain: toBrain2}
