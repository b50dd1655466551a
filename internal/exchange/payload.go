package exchange

import "math/bits"

// What is known of package compress's payloads.
const (
	headerBytes = 12
	gapBlock    = 128 // gaps that are stored in as many bits as their largest takes
)

// PayloadBytes is the expected length of the payload of k of n float32 whose places are
// independent of each other. Where entries crowd, as gradients' do, a block that goes
// from a crowded to an empty region stores all its gaps as wide as the largest: such
// payloads are a few per cent longer.
func PayloadBytes(n, k int) int {
	if k == 0 {
		return 0
	}
	return headerBytes + min(4*n, 4*k+min((n+7)/8, gapBytes(n, k)))
}

// gapBytes is the expected length of the gaps before k of n places: of each block a byte
// and its bits, in whole bytes.
func gapBytes(n, k int) int {
	full, rest := k/gapBlock, k%gapBlock
	size := float64(float64(full) * (1 + float64(gapBlock/8*gapWidth(n, k, gapBlock))))
	if rest > 0 {
		const toWhole = 3.5 / 8 // on average
		size += 1 + toWhole + float64(float64(rest)*gapWidth(n, k, rest)/8)
	}
	return int(size + 0.5)
}

// gapWidth is how many bits the largest of m gaps takes on average. A gap is at least g
// with the probability (1-k/n)^g, and the largest takes more than w bits where one is at
// least 2^w. Products are rounded as such, as in union.
func gapWidth(n, k, m int) float64 {
	width, above := 0.0, 1-float64(k)/float64(n) // of one gap to be at least 2^w
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
