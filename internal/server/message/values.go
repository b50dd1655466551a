package message

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bytesview"
)

// Code is how values are stored: a code of package compress.
type Code byte

// The codes.
const (
	FP32 = Code(compress.CodeFP32) // as they are
	FP16 = Code(compress.CodeFP16) // float16
	BF16 = Code(compress.CodeBF16) // bfloat16
	Int8 = Code(compress.CodeInt8) // blocks of 256 values, whole rows one after the other, that share a scale
)

// ParseCode returns the code of a name: "fp32", "fp16", "bf16" or "int8".
func ParseCode(name string) (Code, error) {
	for c := FP32; c.Valid(); c++ {
		if c.String() == name {
			return c, nil
		}
	}
	return 0, fmt.Errorf("message: no code %q: want fp32, fp16, bf16 or int8", name)
}

// Valid tells whether there is such a code.
func (c Code) Valid() bool { return c <= Int8 }

// quantiser makes no garbage: the codes have no fields.
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

// String is the code's name.
func (c Code) String() string {
	if !c.Valid() {
		return fmt.Sprintf("code %d", byte(c))
	}
	return c.quantiser().Name()
}

// Size is how many bytes n values take.
func (c Code) Size(n int) int { return c.quantiser().Size(n) }

// Encode stores x in dst, of Size(len(x)) bytes. A NaN, and a value that the code has
// no room for, is a *compress.ValueError.
func (c Code) Encode(dst []byte, x []float32) error { return c.quantiser().Encode(dst, x) }

// Decode is the inverse of Encode. The error is an ErrMalformed.
func (c Code) Decode(dst []float32, src []byte) error {
	if err := c.quantiser().Decode(dst, src); err != nil {
		return malformed("%v", err)
	}
	return nil
}

// RowsSize is how many bytes n pushed rows take, of dim gradients and some counts each.
func (c Code) RowsSize(n, dim, counts int) int { return 4*n*counts + c.Size(n*dim) }

// EncodeRows stores pushed rows in dst, of RowsSize bytes: x has the dim gradients of a row and its
// counts behind them, then the next row's. Counts are stored as they are. Where there are
// any, room is memory for the gradients alone, of any length, and what it has become is
// returned. The error is Encode's.
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

// lineSize is that of a cache line in bytes.
const lineSize = 64

// Buffer is memory for a frame: it begins on a cache line and grows by need. The zero
// value is empty.
type Buffer struct{ bytes []byte }

// Sized returns n bytes; what they hold is unspecified. What it returned before is no
// longer valid.
func (b *Buffer) Sized(n int) []byte {
	if cap(b.bytes) < n {
		room := make([]byte, n+n/8+lineSize)
		skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(room)))) & (lineSize - 1)
		b.bytes = room[skip:]
	}
	return b.bytes[:n]
}

// Room is how many bytes Sized returns without making new memory.
func (b *Buffer) Room() int { return cap(b.bytes) }

// Fitting is which of some buffers to take for n bytes: the smallest that has room for them,
// or else the largest, the last one of several; -1 where there are none. Messages of very
// different lengths would make each of them as large as the longest if they took any.
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
