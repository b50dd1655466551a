package compress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/simd"
)

// A payload is the encoding of a vector of n values; numbers are little-endian:
//
//	offset  bytes
//	0       1     1, the format
//	1       1     where the indices are: 0 dense, 1 bitmap, 2 packed
//	2       1     the code of the values
//	3       1     0
//	4       4     n, at most MaxLen
//	8       4     count, of entries that are present; dense: n
//	12            the indices
//	              the values, as their code stores count of them
//
// The payload ends there. Dense has no indices. A bitmap has a bit for each of the n values, from
// the lowest bit of the first byte on; unused bits are 0. Packed indices are gaps: the number of
// absent values before each entry. A block has 128 gaps, the last block fewer: a byte w, at most
// 31, and then the gaps of w bits each, from the lowest bit of a byte on, in whole bytes; unused
// bits are 0.
//
// The encoder takes the shortest form, the first of the above if several are equal. It considers
// the dense form only if the code stores each value separately, or if all values are present.
const (
	payloadFormat = 1
	headerBytes   = 12
	gapBlock      = 128
	gapBitsMax    = 31
)

// where the indices are
const (
	indexDense = iota
	indexBitmap
	indexPacked
)

// PayloadBound is the maximum length of a payload of n values.
func PayloadBound(n int, q Quantiser) int { return headerBytes + (n+7)/8 + q.Size(n) }

// Coder writes and reads payloads. Each goroutine needs a separate coder; see [Chain.NewCoder].
type Coder struct {
	q      Quantiser
	dense  []float32
	widths []byte // widths of the present vector's blocks of gaps
}

// NewCoder returns a coder of the chain's payloads.
func (c *Chain) NewCoder() *Coder { return NewCoder(c.quantiser) }

// NewCoder returns a coder of payloads with values in code q.
func NewCoder(q Quantiser) *Coder { return &Coder{q: q} }

// Use changes the code of the values.
func (c *Coder) Use(q Quantiser) { c.q = q }

// Size is the length of the payload of s.
func (c *Coder) Size(s *Sparse) int {
	where, bytes := c.layout(s)
	count := len(s.Value)
	if where == indexDense {
		count = s.Len
	}
	return headerBytes + bytes + c.q.Size(count)
}

// Encode appends the payload of s, which must be valid, to dst. A *ValueError has the index of the
// value in s.
func (c *Coder) Encode(dst []byte, s *Sparse) ([]byte, error) {
	where, indexBytes := c.layout(s)
	values := s.Value
	if where == indexDense && len(values) < s.Len {
		c.dense = bytesview.Sized(c.dense, s.Len)
		clear(c.dense)
		s.AddTo(c.dense)
		values = c.dense
	}
	start := len(dst)
	dst = appendHeader(dst, where, c.q, s.Len, len(values), indexBytes)
	at := start + headerBytes
	switch where {
	case indexBitmap:
		putBitmap(dst[at:at+indexBytes], s.Index)
	case indexPacked:
		c.putGaps(dst[at:], s.Index)
	}
	return dst, c.q.Encode(dst[at+indexBytes:], values)
}

// EncodeDense appends the payload of all of x to dst.
func (c *Coder) EncodeDense(dst []byte, x []float32) ([]byte, error) {
	start := len(dst)
	dst = appendHeader(dst, indexDense, c.q, len(x), len(x), 0)
	return dst, c.q.Encode(dst[start+headerBytes:], x)
}

// appendHeader appends a header to dst, and space for indices and values.
func appendHeader(dst []byte, where int, q Quantiser, n, count, indexBytes int) []byte {
	start, size := len(dst), headerBytes+indexBytes+q.Size(count)
	dst = slices.Grow(dst, size)[:start+size]
	head := dst[start:]
	head[0], head[1], head[2], head[3] = payloadFormat, byte(where), q.Code(), 0
	binary.LittleEndian.PutUint32(head[4:], uint32(n))
	binary.LittleEndian.PutUint32(head[8:], uint32(count))
	return dst
}

// layout chooses the form of the indices and returns it with its number of bytes. It also stores
// the widths of gaps for putGaps.
func (c *Coder) layout(s *Sparse) (where, bytes int) {
	count := len(s.Index)
	if count == s.Len {
		return indexDense, 0
	}
	packed, bitmap := c.measureGaps(s.Index), (s.Len+7)/8
	where, bytes = indexBitmap, bitmap
	if packed < bitmap {
		where, bytes = indexPacked, packed
	}
	if c.q.Block() == 1 && c.q.Size(s.Len) <= bytes+c.q.Size(count) {
		return indexDense, 0
	}
	return where, bytes
}

// putBitmap fills dst with the bitmap of index, a 64-bit word at a time: single bits in memory
// would each wait for the store before.
func putBitmap(dst []byte, index []int32) {
	clear(dst)
	words, held, at := len(dst)/8, uint64(0), -1
	for i, place := range index {
		word := int(place >> 6)
		if word >= words { // fewer than 64 bits
			for _, place := range index[i:] {
				dst[place>>3] |= 1 << (place & 7)
			}
			return
		}
		if word != at {
			held = 0
		}
		held |= 1 << (place & 63)
		at = word
		binary.LittleEndian.PutUint64(dst[8*word:], held)
	}
}

// gapsBytes is the number of bytes for gaps of width bits, including the width.
func gapsBytes(gaps, width int) int { return 1 + (gaps*width+7)/8 }

// measureGaps stores, for each block of gaps, the number of bits of its largest gap, and returns
// the number of bytes for all blocks.
func (c *Coder) measureGaps(index []int32) (size int) {
	k, before := simd.Host(), int32(-1)
	c.widths = c.widths[:0]
	for len(index) > 0 {
		block := index[:min(gapBlock, len(index))]
		width := bits.Len32(k.GapBits(block, before))
		c.widths = append(c.widths, byte(width))
		size += gapsBytes(len(block), width)
		before, index = block[len(block)-1], index[len(block):]
	}
	return size
}

// putGaps writes packed indices, with the widths from measureGaps, to the front of dst. It may
// overwrite bytes after them, where the values are written later.
func (c *Coder) putGaps(dst []byte, index []int32) {
	k, before := simd.Host(), int32(-1)
	for _, width := range c.widths {
		block := index[:min(gapBlock, len(index))]
		dst[0] = width
		k.PackGaps(dst[1:], block, before, int(width))
		before = block[len(block)-1]
		dst, index = dst[gapsBytes(len(block), int(width)):], index[len(block):]
	}
}

var errIndices = errors.New("the indices")

// Decode sets s to the vector of a payload. A dense payload lists all entries. An error describes
// the defect of the payload; s is then unspecified.
func (c *Coder) Decode(s *Sparse, payload []byte) error {
	where, n, count, rest, err := c.header(payload)
	if err != nil {
		return err
	}
	s.Reset(n)
	s.Reserve(count)
	s.Index, s.Value = s.Index[:count], s.Value[:count]
	switch where {
	case indexDense:
		for i := range s.Index {
			s.Index[i] = int32(i)
		}
	case indexBitmap:
		rest, err = getBitmap(s.Index, rest, n)
	case indexPacked:
		rest, err = getGaps(s.Index, rest, n)
	}
	if err != nil {
		return bad(payload, err)
	}
	if len(rest) != c.q.Size(count) {
		return bad(payload, fmt.Errorf("%d bytes of values, want %d", len(rest), c.q.Size(count)))
	}
	if err := c.q.Decode(s.Value, rest); err != nil {
		return bad(payload, err)
	}
	return c.sound(s.Value, payload)
}

// sound returns an error for a decoded value that no encoder writes: encoders reject NaN, and
// infinities in all codes but float32, which also carries sums.
func (c *Coder) sound(x []float32, payload []byte) error {
	bound := uint32(simd.InfMagnitude)
	if c.q.Code() == CodeFP32 {
		bound++
	}
	if simd.Host().MaxMagnitude(x) < bound {
		return nil
	}
	at := slices.IndexFunc(x, func(v float32) bool { return simd.Magnitude(v) >= bound })
	return bad(payload, fmt.Errorf("entry %[2]d has the value %[1]v, which no encoder writes: was it damaged on its way?", x[at], at))
}

// DecodeDense fills x with the values of a dense payload of equal length.
func (c *Coder) DecodeDense(x []float32, payload []byte) error {
	where, n, _, rest, err := c.header(payload)
	if err == nil && (where != indexDense || n != len(x)) {
		err = bad(payload, fmt.Errorf("want a dense payload of %d values", len(x)))
	}
	if err == nil && len(rest) != c.q.Size(n) {
		err = bad(payload, fmt.Errorf("%d bytes of values, want %d", len(rest), c.q.Size(n)))
	}
	if err != nil {
		return err
	}
	if err := c.q.Decode(x, rest); err != nil {
		return bad(payload, err)
	}
	return c.sound(x, payload)
}

// bad returns an error with the payload's header and the reason.
func bad(payload []byte, why error) error {
	if len(payload) < headerBytes {
		return fmt.Errorf("compress: payload of %d bytes: %w", len(payload), why)
	}
	return fmt.Errorf("compress: payload of %d bytes, layout %d, %d of %d values: %w", len(payload), payload[1],
		binary.LittleEndian.Uint32(payload[8:]), binary.LittleEndian.Uint32(payload[4:]), why)
}

// header checks the payload's header before any allocation: count must fit the bytes of p.
func (c *Coder) header(p []byte) (where, n, count int, rest []byte, err error) {
	if len(p) < headerBytes {
		return 0, 0, 0, nil, bad(p, fmt.Errorf("the header alone has %d", headerBytes))
	}
	where, rest = int(p[1]), p[headerBytes:]
	size, present := binary.LittleEndian.Uint32(p[4:]), binary.LittleEndian.Uint32(p[8:])
	switch {
	case p[0] != payloadFormat || p[3] != 0:
		err = fmt.Errorf("format %d.%d, want %d.0: from another version, or no payload", p[0], p[3], payloadFormat)
	case where > indexPacked:
		err = errors.New("no such layout")
	case p[2] != c.q.Code():
		err = fmt.Errorf("values of code %d, want %d (%s): ranks must have the same chain", p[2], c.q.Code(), c.q.Name())
	case size > MaxLen || present > size || where == indexDense && present != size:
		err = errors.New("no such vector")
	case c.q.Size(int(present)) > len(rest):
		err = fmt.Errorf("%d bytes after the header, its values alone have %d", len(rest), c.q.Size(int(present)))
	}
	if err != nil {
		return 0, 0, 0, nil, bad(p, err)
	}
	return where, int(size), int(present), rest, nil
}

func getBitmap(index []int32, src []byte, n int) (rest []byte, err error) {
	size, found := (n+7)/8, 0
	if len(src) < size {
		return nil, fmt.Errorf("%w end early", errIndices)
	}
	src, rest = src[:size], src[size:]
	words := size &^ 7
	for at := 0; at < words; at += 8 {
		found += bits.OnesCount64(binary.LittleEndian.Uint64(src[at:]))
	}
	for _, b := range src[words:] {
		found += bits.OnesCount8(b)
	}
	if found != len(index) {
		return nil, fmt.Errorf("%w are not as many as the header says", errIndices)
	}
	if n&7 != 0 && src[size-1]>>(n&7) != 0 {
		return nil, fmt.Errorf("%w pass the last value", errIndices)
	}
	simd.Host().FromBitmap(index, src)
	return rest, nil
}

func getGaps(index []int32, src []byte, n int) (rest []byte, err error) {
	k, before := simd.Host(), int32(-1)
	for len(index) > 0 {
		block := index[:min(gapBlock, len(index))]
		if len(src) == 0 || src[0] > gapBitsMax || len(src) < gapsBytes(len(block), int(src[0])) {
			return nil, fmt.Errorf("%w end early, or a width is above %d", errIndices, gapBitsMax)
		}
		width := int(src[0])
		if k.UnpackGaps(block, src[1:], before, width) >= uint32(n) {
			return nil, fmt.Errorf("%w pass the last value", errIndices)
		}
		if end := len(block) * width; end&7 != 0 && src[1+end>>3]>>(end&7) != 0 {
			return nil, fmt.Errorf("%w are followed by bits that are not 0", errIndices)
		}
		before = block[len(block)-1]
		index, src = index[len(block):], src[gapsBytes(len(block), width):]
	}
	return src, nil
}
