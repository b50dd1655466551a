package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// headBytes is the size of a record's head, before keys and values, all little-endian:
//
//	offset  bytes
//	0       1     kind
//	1       1     0
//	2       2     session
//	4       4     table or array
//	8       8     number of the change in its session
//	16      8     step
//	24      8     first value in the whole array; for a Clock the bits of the rate
//	32      4     n, the number of keys
//	36      4     0
//	40      8*n   keys
//	...     4*m   values
const headBytes = 40

type kind byte

const (
	kindRows  kind = 1 + iota // PushRows
	kindDense                 // PushDense
	kindSet                   // SetDense
	kindClock
	kindLeave
	kindLost // lost session that counts as left: written by the server, number 0
	kindMark // empty: a position in the log
	kindPull // counted keys of a pull; seq: part, step: oldest repeatable part, at: process
	kinds
)

type change struct {
	kind    kind
	session int
	table   int
	seq     uint64
	step    uint64
	at      uint64
	keys    []uint64
	values  []float32

	completed bool // set when applied: completes an array's initial values; not in the log
}

func (c *change) putHead(b *[headBytes]byte) {
	*b = [headBytes]byte{byte(c.kind)}
	binary.LittleEndian.PutUint16(b[2:], uint16(c.session))
	binary.LittleEndian.PutUint32(b[4:], uint32(c.table))
	binary.LittleEndian.PutUint64(b[8:], c.seq)
	binary.LittleEndian.PutUint64(b[16:], c.step)
	binary.LittleEndian.PutUint64(b[24:], c.at)
	binary.LittleEndian.PutUint32(b[32:], uint32(len(c.keys)))
}

func (c *change) size() int { return headBytes + 8*len(c.keys) + 4*len(c.values) }

// decode decodes a record, and reuses the memory of keys and values.
func (c *change) decode(b []byte) error {
	if len(b) < headBytes {
		return fmt.Errorf("a change of %d bytes: want at least %d", len(b), headBytes)
	}
	c.kind, c.session, c.table = kind(b[0]), int(binary.LittleEndian.Uint16(b[2:])), int(binary.LittleEndian.Uint32(b[4:]))
	c.seq, c.step, c.at = binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
	n, rest := int(binary.LittleEndian.Uint32(b[32:])), b[headBytes:]
	if c.kind == 0 || c.kind >= kinds || b[1] != 0 || binary.LittleEndian.Uint32(b[36:]) != 0 {
		return fmt.Errorf("a change of kind %d: this program does not know it", c.kind)
	}
	if n > len(rest)/8 || (len(rest)-8*n)%4 != 0 {
		return fmt.Errorf("a change of %d bytes with %d keys", len(b), n)
	}
	c.keys, c.values = bytesview.Sized(c.keys, n), bytesview.Sized(c.values, (len(rest)-8*n)/4)
	copy(bytesview.Bytes(c.keys), rest)
	copy(bytesview.Bytes(c.values), rest[8*n:])
	return nil
}
