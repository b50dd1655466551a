package simd

import (
	"encoding/binary"
	"math/bits"
)

// gapLevel holds the kernels for packed ascending indices, in groups of 8. nil: portable.
type gapLevel struct {
	bits   func(index *int32, groups int, before int32) uint32
	pack   func(dst *byte, index *int32, groups int, before int32, width int)
	unpack func(index *int32, src *byte, groups int, before int32, width int) uint32
	// fromBitmap takes n bits, a multiple of 64.
	fromBitmap func(index *int32, bitmap *byte, n int, base int32) int
}

// Limits of the kernels; see gen/gaps.go. The last group of gaps is written as 8 bytes from its
// middle, and read as 16.
const (
	packMost   = 15
	unpackMost = 25
	packTail   = 8
	unpackTail = 16
)

// groupsWithin is the number of groups of 8 gaps of width bits for an assembly call, if the last
// group has tail bytes from its middle on.
func groupsWithin(gaps, bytes, width, tail int) int {
	room := bytes - width/2 - tail
	if room < 0 || width == 0 {
		return 0
	}
	return min(gaps/8, callFloats/8, room/width+1)
}

// GapBits returns the bitwise or of the gaps of ascending indices: index[i]-index[i-1]-1, with
// before preceding the first.
func (k *Kernels) GapBits(index []int32, before int32) (all uint32) {
	for k.compress.gaps.bits != nil && len(index) >= 8 {
		n := min(len(index), callFloats) &^ 7
		all |= k.compress.gaps.bits(&index[0], n/8, before)
		before, index = index[n-1], index[n:]
	}
	for _, i := range index {
		all |= uint32(i - before - 1)
		before = i
	}
	return all
}

// PackGaps writes the gaps of ascending indices, width bits each, to the front of dst: the first
// into the lowest bits of the first byte, with zeros after the last bit. Gaps take
// (len(index)*width+7)/8 bytes; the 8 bytes after them are unspecified.
func (k *Kernels) PackGaps(dst []byte, index []int32, before int32, width int) {
	_ = dst[:(len(index)*width+7)/8]
	for k.compress.gaps.pack != nil && width <= packMost {
		n := groupsWithin(len(index), len(dst), width, packTail)
		if n == 0 {
			break
		}
		k.compress.gaps.pack(&dst[0], &index[0], n, before, width)
		before, dst, index = index[8*n-1], dst[n*width:], index[8*n:]
	}
	packGaps(dst, index, before, width)
}

// packGaps is PackGaps in Go: four gaps at a time if they fit 56 bits, and therefore a word with a
// partial byte before.
func packGaps(dst []byte, index []int32, before int32, width int) {
	var held uint64 // n bits not written yet
	n, at, w := 0, 0, width&63
	if width <= 14 {
		for ; len(index) >= 4 && at+8 <= len(dst); index = index[4:] {
			a, b, c, d := index[0], index[1], index[2], index[3]
			four := uint64(a-before-1) | uint64(b-a-1)<<w | uint64(c-b-1)<<(2*w&63) | uint64(d-c-1)<<(3*w&63)
			held |= four << (n & 63)
			n, before = n+4*w, d
			binary.LittleEndian.PutUint64(dst[at:], held)
			at, held, n = at+n>>3, held>>(n&^7&63), n&7
		}
	}
	for _, i := range index {
		held |= uint64(i-before-1) << n
		for n, before = n+width, i; n >= 8; n -= 8 {
			dst[at] = byte(held)
			at, held = at+1, held>>8
		}
	}
	if n > 0 {
		dst[at] = byte(held)
	}
}

// UnpackGaps is the inverse of PackGaps, for widths up to 31: it fills index and returns the
// largest, or a value above every int32 after an overflow. src has at least the bytes of the gaps;
// further bytes make it faster.
func (k *Kernels) UnpackGaps(index []int32, src []byte, before int32, width int) (most uint32) {
	_ = src[:(len(index)*width+7)/8]
	for k.compress.gaps.unpack != nil && width <= unpackMost {
		n := groupsWithin(len(index), len(src), width, unpackTail)
		if n == 0 {
			break
		}
		most = max(most, k.compress.gaps.unpack(&index[0], &src[0], n, before, width))
		before, src, index = index[8*n-1], src[n*width:], index[8*n:]
	}
	return max(most, unpackGaps(index, src, before, width))
}

func unpackGaps(index []int32, src []byte, before int32, width int) (most uint32) {
	mask, pos, last := uint32(1)<<width-1, 0, uint32(before)
	for i := range index {
		var word uint64
		if at := pos >> 3; at+8 <= len(src) {
			word = binary.LittleEndian.Uint64(src[at:])
		} else {
			word = shortWord(src[at:])
		}
		last += uint32(word>>(pos&7))&mask + 1
		pos += width
		most = max(most, last)
		index[i] = int32(last)
	}
	return most
}

// FromBitmap writes to index the positions of set bits in bitmap, from the lowest bit of the first
// byte on, and returns their number. index must be large enough.
func (k *Kernels) FromBitmap(index []int32, bitmap []byte) (count int) {
	at := 0 // bytes done
	for k.compress.gaps.fromBitmap != nil {
		// Vectors are written whole: index needs space for every bit read.
		n := min(len(bitmap)-at, (len(index)-count)/8, callFloats/8) &^ 7
		if n == 0 {
			break
		}
		count += k.compress.gaps.fromBitmap(&index[count], &bitmap[at], 8*n, int32(8*at))
		at += n
	}
	for ; at < len(bitmap); at += 8 {
		var word uint64
		if at+8 <= len(bitmap) {
			word = binary.LittleEndian.Uint64(bitmap[at:])
		} else {
			word = shortWord(bitmap[at:])
		}
		for ; word != 0; word &= word - 1 {
			index[count] = int32(8*at + bits.TrailingZeros64(word))
			count++
		}
	}
	return count
}

// shortWord reads the last bytes, fewer than 8.
func shortWord(src []byte) (word uint64) {
	for i, b := range src {
		word |= uint64(b) << (8 * i)
	}
	return word
}
