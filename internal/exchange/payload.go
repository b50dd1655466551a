package exchange

import "math/bits"

// Constants of package compress's payloads.
const (
	headerBytes = 12
	gapBlock    = 128 // gaps stored at the width of the largest
)

// PayloadBytes is the expected payload length of k of n float32 at independent indices. Payloads of
// gradients are a few per cent longer, because their entries are not evenly spread: a block of gaps
// stores all of them in the width of the largest.
func PayloadBytes(n, k int) int {
	if k == 0 {
		return 0
	}
	return headerBytes + min(4*n, 4*k+min((n+7)/8, gapBytes(n, k)))
}

// gapBytes is the expected length of the gaps before k of n indices: for each block a byte and its
// bits, in whole bytes.
func gapBytes(n, k int) int {
	full, rest := k/gapBlock, k%gapBlock
	size := float64(float64(full) * (1 + float64(gapBlock/8*gapWidth(n, k, gapBlock))))
	if rest > 0 {
		const toWhole = 3.5 / 8 // mean rounding to whole bytes
		size += 1 + toWhole + float64(float64(rest)*gapWidth(n, k, rest)/8)
	}
	return int(size + 0.5)
}

// gapWidth is the mean width in bits of the largest of m gaps. A gap is at least g with the
// probability (1-k/n)^g, and the largest takes more than w bits if any is at least 2^w. Products
// are rounded explicitly, as in union.
func gapWidth(n, k, m int) float64 {
	width, above := 0.0, 1-float64(k)/float64(n) // probability of a gap of at least 2^w
	for range bits.Len(uint(n)) {
		width += 1 - power(1-above, m)
		above = float64(above * above)
	}
	return width
}

// power is x^m for m > 0, by squaring.
func power(x float64, m int) float64 {
	all := 1.0
	for ; m > 0; m >>= 1 {
		if m&1 == 1 {
			all = float64(all * x)
		}
		x = float64(x * x)
	}
	return all
}
