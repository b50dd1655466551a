package aggregate

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/transport"
)

// tagGroup is the tag group of all messages, different from any collective group. A tag also has
// the sequence number of the exchange. Parts, in both directions:
//
//	0       the head, trainers to servers only
//	1 + 3k  the size of the body of segment k, of sparse exchanges only
//	2 + 3k  the body of segment k: the values as their code stores them, or a
//	        payload of compress
//	3 + 3k  what the sum of segment k lost, in float32, from the server to each
//	        trainer of what it keeps (head.errorRange), of exchanges that lose (head.hasSumError)
const tagGroup = 3 << 30

func headTag(seq uint32) transport.Tag { return transport.Tag{Group: tagGroup, Seq: seq} }

func sizeTag(seq uint32, k int) transport.Tag {
	return transport.Tag{Group: tagGroup, Seq: seq, Part: 1 + 3*uint32(k)}
}

func bodyTag(seq uint32, k int) transport.Tag {
	return transport.Tag{Group: tagGroup, Seq: seq, Part: 2 + 3*uint32(k)}
}

func lostTag(seq uint32, k int) transport.Tag {
	return transport.Tag{Group: tagGroup, Seq: seq, Part: 3 + 3*uint32(k)}
}

// kind is the kind of a head.
type kind uint8

const (
	kindDense  kind = iota // values
	kindSparse             // payloads
	kindLeave              // no more exchanges
	kinds
)

// head describes an exchange. All trainers must send the same. On the wire, little-endian:
//
//	offset bytes
//	0      1     2, the format
//	1      1     kind
//	2      1     the values' code
//	3      1     0
//	4      4     values of a block of the code
//	8      8     the first value's place in the arena
//	16     4     values
//	20     4     values of a segment
type head struct {
	kind    kind
	code    byte
	block   int
	lo      int
	n       int
	segment int
}

const (
	headBytes  = 24
	headFormat = 2
	sizeBytes  = 8
)

func (h head) encode(b *[headBytes]byte) {
	le := binary.LittleEndian
	b[0], b[1], b[2], b[3] = headFormat, byte(h.kind), h.code, 0
	le.PutUint32(b[4:], uint32(h.block))
	le.PutUint64(b[8:], uint64(h.lo))
	le.PutUint32(b[16:], uint32(h.n))
	le.PutUint32(b[20:], uint32(h.segment))
}

var errHead = errors.New("the first message of an exchange cannot be read: do all members run the same program?")

func decodeHead(b *[headBytes]byte) (head, error) {
	le := binary.LittleEndian
	h := head{
		kind: kind(b[1]), code: b[2], block: int(le.Uint32(b[4:])), lo: int(le.Uint64(b[8:])),
		n: int(le.Uint32(b[16:])), segment: int(le.Uint32(b[20:])),
	}
	switch {
	case b[0] != headFormat || b[3] != 0 || h.kind >= kinds:
		return head{}, errHead
	case h.kind == kindLeave:
		if h != (head{kind: kindLeave}) {
			return head{}, errHead
		}
	case h.lo < 0 || h.n > compress.MaxLen || h.block < 1 || h.segment < 1 || h.segment > maxValues || h.block > maxValues:
		return head{}, fmt.Errorf("%w (%v)", errHead, h)
	}
	return h, nil
}

// String describes the exchange.
func (h head) String() string {
	if h.kind == kindLeave {
		return "has left"
	}
	what := ""
	if h.kind == kindSparse {
		what = "sparse "
	}
	return fmt.Sprintf("%s%s, %d values at %d, in segments of %d", what, codeName(h.code, h.block), h.n, h.lo, h.segment)
}

func codeName(code byte, block int) string {
	for _, q := range Codes() {
		if q.Code() == code && q.Block() == block {
			return q.Name()
		}
	}
	return fmt.Sprintf("code %d in blocks of %d", code, block)
}

// hasSumError reports whether sums lose precision in code q, so that trainers must keep the error.
// The sum of a single trainer is its push, without an error.
func (h head) hasSumError(q compress.Quantiser, trainers int) bool {
	return h.kind == kindDense && q.Feedback() && trainers > 1
}

// errorRange is the range for which a trainer keeps the error of the sum. It is the same as in an
// exchange without servers (package exchange), so that both give the same bits.
func (h head) errorRange(rank, trainers int) (lo, hi int) {
	return newLayout(h.n, h.block, 1, trainers).bounds(rank)
}

// layout is the division of the exchange. Entries of a sparse exchange can be divided anywhere.
func (h head) layout(servers int) layout {
	if h.kind == kindSparse {
		return newLayout(h.n, 1, h.segment, servers)
	}
	return newLayout(h.n, h.block, h.segment, servers)
}

// size is the size of a segment's body in bytes, and the index in the exchange's range at which the
// body's values begin.
type size struct {
	bytes, base int
}

func (s size) encode(b *[sizeBytes]byte) {
	binary.LittleEndian.PutUint32(b[:], uint32(s.bytes))
	binary.LittleEndian.PutUint32(b[4:], uint32(s.base))
}

// decodeSize reads a size, and rejects one that is impossible for segment [lo, hi): above
// bodyBound, or with a beginning after lo.
func decodeSize(b *[sizeBytes]byte, q compress.Quantiser, lo, hi int) (size, error) {
	s := size{int(binary.LittleEndian.Uint32(b[:])), int(binary.LittleEndian.Uint32(b[4:]))}
	if most := bodyBound(hi-lo, q); s.bytes > most || s.base > lo {
		return size{}, fmt.Errorf("a payload of %d bytes that begins at value %d, for a segment of the values %d to %d: want at most %d bytes, and none that begins later", s.bytes, s.base, lo, hi, most)
	}
	return s, nil
}

// bodyBound is the maximum payload length of entries within n values, plus those of partial blocks
// at either end. An index takes at most 31 bits, and a byte per 128.
func bodyBound(n int, q compress.Quantiser) int {
	if q.Block() > 1 {
		n += 2 * q.Block()
	}
	return 64 + 5*n + q.Size(n)
}
