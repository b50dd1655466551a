package simd

// seqLevel holds the kernels of sequence models. They take counts that are
// multiples of vectorLevel.width; nil: portable.
type seqLevel struct {
	dropout func(dst, src *float32, n int, first, key0, key1, threshold uint32, scale float32)
}
