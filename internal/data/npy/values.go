package npy

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Type is the type of an array's numbers.
type Type struct {
	Kind byte // 'f', 'i', 'u', or 'b' (bool)
	Size int  // bytes
	Big  bool // big-endian
}

// Integer reports whether the type is an integer or bool.
func (t Type) Integer() bool { return t.Kind != 'f' }

// String returns NumPy's name of the type.
func (t Type) String() string {
	name := map[byte]string{'f': "float", 'i': "int", 'u': "uint", 'b': "bool"}[t.Kind]
	if t.Kind == 'b' {
		return name
	}
	return name + strconv.Itoa(8*t.Size)
}

// parseType parses a NumPy type such as <f4, >i8, |u1 or ?.
func parseType(text string) (Type, error) {
	t, rest := Type{}, text
	if rest != "" && (rest[0] == '<' || rest[0] == '>' || rest[0] == '|' || rest[0] == '=') {
		t.Big, rest = rest[0] == '>', rest[1:]
	}
	if rest == "?" {
		rest = "b1"
	}
	if len(rest) == 2 {
		t.Kind, t.Size = rest[0], int(rest[1]-'0')
	}
	sizes := map[byte][]int{'f': {2, 4, 8}, 'i': {1, 2, 4, 8}, 'u': {1, 2, 4, 8}, 'b': {1}}
	if !slices.Contains(sizes[t.Kind], t.Size) {
		return t, fmt.Errorf("an array of type %q: want numbers: f2, f4, f8, i1 to i8, u1 to u8 or bool", text)
	}
	return t, nil
}

// Float32 converts len(dst) values from b, in the format of Bytes.
func (t Type) Float32(dst []float32, b []byte) {
	switch {
	case t.Size == 1 && t.Kind != 'i':
		for i, v := range b[:len(dst)] {
			dst[i] = float32(v)
		}
	case t == Type{'f', 4, false}:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case t.Kind == 'f':
		for i := range dst {
			dst[i] = float32(t.float(b[i*t.Size:]))
		}
	default:
		for i := range dst {
			if v := t.Int64(b[i*t.Size:]); v < 0 && t.Kind == 'u' {
				dst[i] = float32(uint64(v))
			} else {
				dst[i] = float32(v)
			}
		}
	}
}

// bits returns the bits of the first value.
func (t Type) bits(b []byte) uint64 {
	var order binary.ByteOrder = binary.LittleEndian
	if t.Big {
		order = binary.BigEndian
	}
	switch t.Size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(order.Uint16(b))
	case 4:
		return uint64(order.Uint32(b))
	}
	return order.Uint64(b)
}

// Int64 returns the first value of an integer type; a uint64 of 2^63 or more becomes negative.
func (t Type) Int64(b []byte) int64 {
	v, unused := t.bits(b), 64-8*t.Size
	if t.Kind == 'i' {
		return int64(v<<unused) >> unused
	}
	return int64(v)
}

// float returns the first value of a float type.
func (t Type) float(b []byte) float64 {
	v := t.bits(b)
	switch t.Size {
	case 2:
		return Half(uint16(v))
	case 4:
		return float64(math.Float32frombits(uint32(v)))
	}
	return math.Float64frombits(v)
}

// Half returns the value of a float16.
func Half(h uint16) float64 {
	sign, exponent, mantissa := uint32(h)>>15<<31, uint32(h)>>10&31, uint32(h)&1023
	bits := sign | (exponent+112)<<23 | mantissa<<13
	switch exponent {
	case 31:
		bits = sign | 0xff<<23 | mantissa<<13
	case 0:
		bits = sign | math.Float32bits(float32(mantissa)/(1<<24))
	}
	return float64(math.Float32frombits(bits))
}
