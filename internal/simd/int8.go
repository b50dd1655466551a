package simd

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// Int8Block is the number of values of [Kernels.ToInt8] with a common scale, and Int8Stored the
// number of bytes for them: the scale, a float32 in little-endian order, and a byte for each value.
const (
	Int8Block  = 256
	Int8Stored = 4 + Int8Block
)

// A scale has 16 bits of fraction, so that its products with bytes are exact. A block below
// smallestBlock is stored as zeros, because its scale's inverse could overflow.
const (
	scaleCut      = 1<<32 - 1<<8
	smallestBlock = 1e-30
	largestScale  = math.MaxFloat32 / 127
)

// ToInt8 stores x in blocks, the last possibly shorter. The scale is the largest magnitude divided
// by 127, cut to 16 bits of fraction; each stored value is the nearest integer to x/scale, ties to
// even. It returns len(x), or the beginning of the first block with a NaN or an infinite value. dst
// has len(x) bytes and 4 for each block.
func (k *Kernels) ToInt8(dst []byte, x []float32) int {
	at := 0
	for k.compress.quantiseBlocks != nil && len(x)-at >= Int8Block {
		n := min(len(x)-at, callFloats) / Int8Block
		q := signed(dst)
		done := k.compress.quantiseBlocks(&q[:n*Int8Stored][0], &x[at], n, Magnitude(smallestBlock), scaleCut)
		at, dst = at+done*Int8Block, dst[done*Int8Stored:]
		if done < n {
			return at
		}
	}
	for at < len(x) {
		block := x[at:min(at+Int8Block, len(x))]
		most := k.MaxMagnitude(block)
		if most >= InfMagnitude {
			return at
		}
		scale, q := float32(0), signed(dst[4:4+len(block)])
		if largest := math.Float32frombits(most); largest < smallestBlock {
			clear(q)
		} else {
			scale = math.Float32frombits(math.Float32bits(largest/127) & scaleCut)
			k.Quantise(q, block, 1/scale)
		}
		binary.LittleEndian.PutUint32(dst, math.Float32bits(scale))
		at, dst = at+len(block), dst[4+len(block):]
	}
	return at
}

// FromInt8 is the inverse of ToInt8. It returns len(dst), or the beginning of the first block with
// a scale that ToInt8 never stores.
func (k *Kernels) FromInt8(dst []float32, src []byte) int {
	at := 0
	most := math.Float32bits(largestScale)
	for k.compress.dequantiseBlocks != nil && len(dst)-at >= Int8Block {
		n := min(len(dst)-at, callFloats) / Int8Block
		q := signed(src)
		done := k.compress.dequantiseBlocks(&dst[at], &q[:n*Int8Stored][0], n, most)
		at, src = at+done*Int8Block, src[done*Int8Stored:]
		if done < n {
			return at
		}
	}
	for at < len(dst) {
		block := dst[at:min(at+Int8Block, len(dst))]
		bits := binary.LittleEndian.Uint32(src)
		if bits > most { // includes negative numbers and NaN
			return at
		}
		k.Dequantise(block, signed(src[4:4+len(block)]), math.Float32frombits(bits))
		at, src = at+len(block), src[4+len(block):]
	}
	return at
}

func signed(b []byte) []int8 {
	return unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(b))), len(b))
}
