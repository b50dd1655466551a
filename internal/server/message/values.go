package message

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bytesview"
)

// Code is the encoding of values: a code of package compress.
type Code byte

// The codes.
const (
	FP32 = Code(compress.CodeFP32) // float32
	FP16 = Code(compress.CodeFP16) // float16
	BF16 = Code(compress.CodeBF16) // bfloat16
	Int8 = Code(compress.CodeInt8) // blocks of 256 values, across rows, that share a scale
)

// Coded, as the Code of a push of an array, marks a body that is a payload of package compress: a
// vector of values from At on, possibly sparse, with values in a code that the payload names. Count
// is the length of the payload in bytes. The payload may include values of neighbouring servers, in
// blocks that cross a border; a server takes the values in its range.
const Coded Code = 255

// ParseCode returns the code for a name: "fp32", "fp16", "bf16" or "int8".
func ParseCode(name string) (Code, error) {
	for c := FP32; c.Valid(); c++ {
		if c.String() == name {
			return c, nil
		}
	}
	return 0, fmt.Errorf("message: no code %q: want fp32, fp16, bf16 or int8", name)
}

// Valid reports whether c is a code.
func (c Code) Valid() bool { return c <= Int8 }

// quantiser does not allocate: the codes have no fields.
func (c Code) quantiser() compress.Quantiser {
	switch c {
	case FP16:
		return compress.FP16{}
	case BF16:
		return compress.BF16{}
	case Int8:
		return compress.Int8{}
	}
	return compress.FP32{}
}

// String returns the code's name.
func (c Code) String() string {
	if !c.Valid() {
		return fmt.Sprintf("code %d", byte(c))
	}
	return c.quantiser().Name()
}

// Size returns the encoded size of n values in bytes.
func (c Code) Size(n int) int { return c.quantiser().Size(n) }

// Encode encodes x into dst, of Size(len(x)) bytes. NaN and values out of the code's range return a
// *compress.ValueError.
func (c Code) Encode(dst []byte, x []float32) error { return c.quantiser().Encode(dst, x) }

// Decode is the inverse of Encode. Its error is ErrMalformed.
func (c Code) Decode(dst []float32, src []byte) error {
	if err := c.quantiser().Decode(dst, src); err != nil {
		return malformed("%v", err)
	}
	return nil
}

// RowsSize returns the encoded size of n pushed rows, of dim gradients and counts each.
func (c Code) RowsSize(n, dim, counts int) int { return 4*n*counts + c.Size(n*dim) }

// EncodeRows encodes pushed rows into dst, of RowsSize bytes: in x each row's counts follow its dim
// gradients. Counts are not converted. With counts, room is a buffer of any length for the
// gradients, returned for reuse. The error is Encode's.
func (c Code) EncodeRows(dst []byte, x []float32, dim, counts int, room []float32) ([]float32, error) {
	if counts == 0 {
		return room, c.Encode(dst, x)
	}
	width := dim + counts
	n := len(x) / width
	room = slices.Grow(room[:0], n*dim)[:n*dim]
	front := bytesview.As[float32](dst[:4*n*counts])
	for i := range n {
		row := x[i*width:][:width]
		copy(room[i*dim:][:dim], row)
		copy(front[i*counts:], row[dim:])
	}
	return room, c.Encode(dst[len(front)*4:], room)
}

// DecodeRows is the inverse of EncodeRows, with the same use of room.
func (c Code) DecodeRows(dst []float32, src []byte, dim, counts int, room []float32) ([]float32, error) {
	if counts == 0 {
		return room, c.Decode(dst, src)
	}
	width := dim + counts
	n := len(dst) / width
	front, grads := bytesview.As[float32](src[:4*n*counts]), src[4*n*counts:]
	room = slices.Grow(room[:0], n*dim)[:n*dim]
	if err := c.Decode(room, grads); err != nil {
		return room, err
	}
	for i := range n {
		row := dst[i*width:][:width]
		copy(row, room[i*dim:][:dim])
		copy(row[dim:], front[i*counts:][:counts])
	}
	return room, nil
}

const lineSize = 64

// Buffer is memory for a frame, aligned to a cache line, that grows as needed. Zero: empty.
type Buffer struct{ bytes []byte }

// Sized returns n bytes with unspecified contents. Earlier results become invalid.
func (b *Buffer) Sized(n int) []byte {
	if cap(b.bytes) < n {
		room := make([]byte, n+n/8+lineSize)
		skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(room)))) & (lineSize - 1)
		b.bytes = room[skip:]
	}
	return b.bytes[:n]
}

// Room returns the number of bytes that Sized returns without an allocation.
func (b *Buffer) Room() int { return cap(b.bytes) }

// Fitting selects a buffer for n bytes: the smallest that is large enough, or else the largest (the
// last of several); -1 without buffers. With another choice all buffers would grow to the length of
// the longest message.
func Fitting(buffers, n int, room func(i int) int) int {
	best, had := -1, 0
	for i := buffers - 1; i >= 0; i-- {
		has := room(i)
		if best < 0 || has >= n && (had < n || has < had) || has < n && had < has {
			best, had = i, has
		}
	}
	return best
}
