package checkpoint

import (
	"encoding/binary"
	"math"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// littleEndian reports whether memory has the file's byte order; values are then read and written
// in place.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1 // never written

// bytesOf returns the file's bytes of values [lo, hi): a view if memory has the file's order, else
// a copy in buf.
func (a Array) bytesOf(buf []byte, lo, hi int, little bool) []byte {
	if little {
		return a.view(lo, hi)
	}
	buf = buf[:(hi-lo)*a.kind.width()]
	switch a.kind {
	case float32s:
		for i, v := range a.floats[lo:hi] {
			binary.LittleEndian.PutUint32(buf[4*i:], math.Float32bits(v))
		}
	case uint64s:
		for i, v := range a.words[lo:hi] {
			binary.LittleEndian.PutUint64(buf[8*i:], v)
		}
	default:
		copy(buf, a.bytes[lo:hi])
	}
	return buf
}

// set sets the values from lo on to the contents of b, bytes of the file.
func (a Array) set(b []byte, lo int) {
	switch a.kind {
	case float32s:
		for i := range len(b) / 4 {
			a.floats[lo+i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case uint64s:
		for i := range len(b) / 8 {
			a.words[lo+i] = binary.LittleEndian.Uint64(b[8*i:])
		}
	default:
		copy(a.bytes[lo:], b)
	}
}

// view is the memory of values [lo, hi).
func (a Array) view(lo, hi int) []byte {
	switch a.kind {
	case float32s:
		return bytesview.Bytes(a.floats[lo:hi])
	case uint64s:
		return bytesview.Bytes(a.words[lo:hi])
	default:
		return a.bytes[lo:hi]
	}
}
