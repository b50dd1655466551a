package compress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// A payload is a vector of n values as it is sent; numbers are little-endian:
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
// and nothing after. Dense has no indices. A bitmap has a bit for each of the n
// values, the first the lowest of the first byte, bits behind the last 0. Packed
// indices are gaps, the absent values between one entry and the next, the first
// entry's from the front on; in blocks of 128 gaps, the last shorter: a byte w,
// at most 31, and the gaps of w bits each from the lowest bit of a byte on, in
// whole bytes, bits behind the last 0.
//
// Of these the shortest is taken, of equal ones the first. Dense is considered
// where the code stores each value by itself, or all are present. So a payload
// is never longer than the dense one of such a code.
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

// PayloadBound is the length that no payload of n values exceeds.
func PayloadBound(n int, q Quantiser) int { return headerBytes + (n+7)/8 + q.Size(n) }

// Coder writes and reads payloads. Each goroutine has its own; see
// [Chain.NewCoder].
type Coder struct {
	q     Quantiser
	dense []float32
}

// NewCoder returns a coder of the chain's payloads.
func (c *Chain) NewCoder() *Coder { return NewCoder(c.quantiser) }

// NewCoder returns a coder of payloads whose values q stores.
func NewCoder(q Quantiser) *Coder { return &Coder{q: q} }

// Use changes the code of the values.
func (c *Coder) Use(q Quantiser) { c.q = q }

// Size is the length of the payload of s.
func (c *Coder) Size(s *Sparse) int {
	where, bytes := layoutOf(s, c.q)
	count := len(s.Value)
	if where == indexDense {
		count = s.Len
	}
	return headerBytes + bytes + c.q.Size(count)
}

// Encode appends the payload of s to dst. s must be valid. Errors are those of
// the code, with the index in s.
func (c *Coder) Encode(dst []byte, s *Sparse) ([]byte, error) {
	where, indexBytes := layoutOf(s, c.q)
	values := s.Value
	if where == indexDense && len(values) < s.Len {
		c.dense = sized(c.dense, s.Len)
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
		putGaps(dst[at:], s.Index)
	}
	return dst, c.q.Encode(dst[at+indexBytes:], values)
}

// EncodeDense appends the payload of all of x to dst.
func (c *Coder) EncodeDense(dst []byte, x []float32) ([]byte, error) {
	start := len(dst)
	dst = appendHeader(dst, indexDense, c.q, len(x), len(x), 0)
	return dst, c.q.Encode(dst[start+headerBytes:], x)
}

// appendHeader appends a header and room for what follows.
func appendHeader(dst []byte, where int, q Quantiser, n, count, indexBytes int) []byte {
	start, size := len(dst), headerBytes+indexBytes+q.Size(count)
	if cap(dst) < start+size {
		grown := make([]byte, start, start+size)
		copy(grown, dst)
		dst = grown
	}
	dst = dst[:start+size]
	head := dst[start:]
	head[0], head[1], head[2], head[3] = payloadFormat, byte(where), q.Code(), 0
	binary.LittleEndian.PutUint32(head[4:], uint32(n))
	binary.LittleEndian.PutUint32(head[8:], uint32(count))
	return dst
}

// layoutOf is the rule by which indices are stored, and how many bytes they take.
func layoutOf(s *Sparse, q Quantiser) (where, bytes int) {
	count := len(s.Index)
	if count == s.Len {
		return indexDense, 0
	}
	packed, bitmap := gapsSize(s.Index), (s.Len+7)/8
	where, bytes = indexBitmap, bitmap
	if packed < bitmap {
		where, bytes = indexPacked, packed
	}
	if q.Block() == 1 && q.Size(s.Len) <= bytes+q.Size(count) {
		return indexDense, 0
	}
	return where, bytes
}

func putBitmap(dst []byte, index []int32) {
	clear(dst)
	for _, i := range index {
		dst[i>>3] |= 1 << (i & 7)
	}
}

// gapWidth is how many bits the largest gap of a block takes.
func gapWidth(block []int32, before int32) int {
	all := uint32(0)
	for _, i := range block {
		all |= uint32(i - before - 1)
		before = i
	}
	return bits.Len32(all)
}

func gapsSize(index []int32) (bytes int) {
	before := int32(-1)
	for len(index) > 0 {
		block := index[:min(gapBlock, len(index))]
		bytes += 1 + (len(block)*gapWidth(block, before)+7)/8
		before, index = block[len(block)-1], index[len(block):]
	}
	return bytes
}

// putGaps writes packed indices to the front of dst. What is behind them is
// overwritten, and written later.
func putGaps(dst []byte, index []int32) {
	before := int32(-1)
	for len(index) > 0 {
		block := index[:min(gapBlock, len(index))]
		width := gapWidth(block, before)
		dst[0] = byte(width)
		putBits(dst[1:], block, before, width)
		before = block[len(block)-1]
		dst, index = dst[1+(len(block)*width+7)/8:], index[len(block):]
	}
}

// putBits writes the gaps of a block: four at a time where they fit 56 bits, so
// that with less than a byte left over they fit a word.
func putBits(dst []byte, block []int32, before int32, width int) {
	var held uint64 // n bits not written yet
	n, at, w := 0, 0, width&63
	if width <= 14 {
		for ; len(block) >= 4 && at+8 <= len(dst); block = block[4:] {
			a, b, c, d := block[0], block[1], block[2], block[3]
			four := uint64(a-before-1) | uint64(b-a-1)<<w | uint64(c-b-1)<<(2*w&63) | uint64(d-c-1)<<(3*w&63)
			held |= four << (n & 63)
			n, before = n+4*w, d
			binary.LittleEndian.PutUint64(dst[at:], held)
			at, held, n = at+n>>3, held>>(n&^7&63), n&7
		}
	}
	for _, i := range block {
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

var errIndices = errors.New("the indices")

// Decode makes s the vector of a payload. A dense payload lists all entries. The
// error says what is wrong with a payload; s is unspecified then.
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
	return nil
}

// DecodeDense fills x with the values of a dense payload of its length.
func (c *Coder) DecodeDense(x []float32, payload []byte) error {
	where, n, _, rest, err := c.header(payload)
	if err == nil && (where != indexDense || n != len(x)) {
		err = bad(payload, fmt.Errorf("want a dense payload of %d values", len(x)))
	}
	if err == nil && len(rest) != c.q.Size(n) {
		err = bad(payload, fmt.Errorf("%d bytes of values, want %d", len(rest), c.q.Size(n)))
	}
	if err == nil {
		if err = c.q.Decode(x, rest); err != nil {
			err = bad(payload, err)
		}
	}
	return err
}

// bad says which payload cannot be read, and why.
func bad(payload []byte, why error) error {
	if len(payload) < headerBytes {
		return fmt.Errorf("compress: payload of %d bytes: %w", len(payload), why)
	}
	return fmt.Errorf("compress: payload of %d bytes, layout %d, %d of %d values: %w", len(payload), payload[1],
		binary.LittleEndian.Uint32(payload[8:]), binary.LittleEndian.Uint32(payload[4:]), why)
}

// header checks all that can be checked before memory is needed: count is then
// bounded by the bytes that are there.
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
	size := (n + 7) / 8
	if len(src) < size {
		return nil, fmt.Errorf("%w end early", errIndices)
	}
	src, rest = src[:size], src[size:]
	found := 0
	for at := 0; at < size; at += 8 {
		var word uint64
		if at+8 <= size {
			word = binary.LittleEndian.Uint64(src[at:])
		} else {
			word = shortWord(src[at:])
		}
		if found+bits.OnesCount64(word) > len(index) {
			return nil, fmt.Errorf("%w are more than their count", errIndices)
		}
		for ; word != 0; word &= word - 1 {
			index[found] = int32(8*at + bits.TrailingZeros64(word))
			found++
		}
	}
	if found < len(index) || found > 0 && int(index[found-1]) >= n {
		return nil, fmt.Errorf("%w are fewer than their count, or behind the last value", errIndices)
	}
	return rest, nil
}

func getGaps(index []int32, src []byte, n int) (rest []byte, err error) {
	before := -1
	for len(index) > 0 {
		block := index[:min(gapBlock, len(index))]
		if len(src) == 0 || src[0] > gapBitsMax || len(src) < 1+(len(block)*int(src[0])+7)/8 {
			return nil, fmt.Errorf("%w end early, or a width is above %d", errIndices, gapBitsMax)
		}
		width := int(src[0])
		if before, err = getBits(block, src[1:], before, width, n); err != nil {
			return nil, err
		}
		index, src = index[len(block):], src[1+(len(block)*width+7)/8:]
	}
	return src, nil
}

// getBits reads a block of gaps from the front of src and returns the last index.
func getBits(block []int32, src []byte, before, width, n int) (int, error) {
	mask, pos := uint64(1)<<width-1, 0
	for i := range block {
		var word uint64
		if at := pos >> 3; at+8 <= len(src) {
			word = binary.LittleEndian.Uint64(src[at:])
		} else {
			word = shortWord(src[at:])
		}
		before += int(word>>(pos&7)&mask) + 1
		pos += width
		if before >= n {
			return 0, fmt.Errorf("%w pass the last value", errIndices)
		}
		block[i] = int32(before)
	}
	if pos&7 != 0 && src[pos>>3]>>(pos&7) != 0 {
		return 0, fmt.Errorf("%w are followed by bits that are not 0", errIndices)
	}
	return before, nil
}

// shortWord reads the last bytes, fewer than 8.
func shortWord(src []byte) (word uint64) {
	for i, b := range src {
		word |= uint64(b) << (8 * i)
	}
	return word
}
