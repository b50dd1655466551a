package simd

// DropoutKey names a stream of random decisions: equal keys decide alike.
type DropoutKey [2]uint32

// Dropout computes dst[i] = src[i]*scale if element first+i of the stream key stays, and +0
// otherwise. An element stays if its random word is at least threshold, with probability 1 -
// threshold/2^32. No mask is stored: for the gradient, repeat the call on the gradient. dst may be
// src.
//
// The word of element i is a 32-bit hash with a word of the key added before each of its two
// rounds, a counter-based generator after Salmon et al., "Parallel Random Numbers: As Easy as 1, 2,
// 3" (2011), with the mixing function lowbias32 found by Wellons' hash prospector.
func (k *Kernels) Dropout(dst, src []float32, key DropoutKey, first, threshold uint32, scale float32) {
	if len(dst) != len(src) {
		sameLength("Dropout", len(dst), len(src))
	}
	for k.seq.dropout != nil && len(dst) >= k.vec.width {
		n := k.bulk(len(dst))
		k.seq.dropout(&dst[0], &src[0], n, first, key[0], key[1], threshold, scale)
		dst, src, first = dst[n:], src[n:], first+uint32(n)
	}
	for i, v := range src {
		if dropoutWord(key, first+uint32(i)) >= threshold {
			dst[i] = v * scale
		} else {
			dst[i] = 0
		}
	}
}

// dropoutWord is the random word of an element.
func dropoutWord(key DropoutKey, i uint32) uint32 { return mix32(mix32(i^key[0]) + key[1]) }

// mix32 is a permutation of 32-bit words: every bit of the result depends on every bit of x.
func mix32(x uint32) uint32 {
	x = (x ^ x>>16) * 0x7feb352d
	x = (x ^ x>>15) * 0x846ca68b
	return x ^ x>>16
}
