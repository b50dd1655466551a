package simd

// seqLevel holds the kernels of sequence models; nil: portable.
type seqLevel struct {
	// dropout and softmaxGrad take counts that are multiples of vectorLevel.width,
	dropout     func(dst, src *float32, n int, first, key0, key1, threshold uint32, scale float32)
	softmaxGrad func(dp, p *float32, n int, dot, scale float32)
	// lstm and the rest any count.
	lstm     func(h, c, gates *float32, gap int, c0 *float32, n int)
	lookup   func(dst, table *float32, ids *int32, n, dim int)                                             // n > 0
	bags     func(dst *float32, gap int, table *float32, ids, offsets *int32, scales *float32, n, dim int) // n and all ids > 0
	lstmGrad func(gates *float32, gap int, dc, dh, c, c0 *float32, n int)
}
