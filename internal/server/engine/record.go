package engine

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// A record of the log is a head, then keys and values as they came. All numbers are
// little-endian:
//
//	offset  bytes
//	0       1     kind
//	1       1     0
//	2       2     session
//	4       4     table or array
//	8       8     number of the change in its session
//	16      8     step
//	24      8     first value in the whole array; of a Clock the bits of the rate
//	32      4     n, the number of keys
//	36      4     0
//	40      8*n   keys
//	...     4*m   values
const headBytes = 40

// kind is what a record is.
type kind byte

const (
	kindRows  kind = 1 + iota // PushRows
	kindDense                 // PushDense
	kindSet                   // SetDense
	kindClock
	kindLeave
	kindLost // session was lost and counts as left: the server's own, number 0
	kindMark // nothing: a place in the log
	kindPull // counts of keys of a pull that have no row: number is its part, step the oldest part that may come again, value the process
	kinds
)

// change is a record decoded.
type change struct {
	kind    kind
	session int
	table   int
	seq     uint64
	step    uint64
	at      uint64
	keys    []uint64
	values  []float32

	completed bool // once it is applied: with it an array has all of its initial values; not in the log
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

// size is how long the record is.
func (c *change) size() int { return headBytes + 8*len(c.keys) + 4*len(c.values) }

// decode reads a record. Memory of keys and values is used again.
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
	swap(c.keys, c.values)
	return nil
}

// little says that memory has the order of files.
var little = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// swap turns what was copied from a file to this machine's order, or back.
func swap(words []uint64, values []float32) {
	if little {
		return
	}
	for i, b := 0, bytesview.Bytes(words); i < len(b); i += 8 {
		words[i/8] = binary.LittleEndian.Uint64(b[i:])
	}
	for i, b := 0, bytesview.Bytes(values); i < len(b); i += 4 {
		values[i/4] = math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))
	}
}

// wire are the bytes of keys and values in the order of files. Where that is not the
// machine's they are copied.
func wire(keys []uint64, values []float32) (k, v []byte) {
	if little {
		return bytesview.Bytes(keys), bytesview.Bytes(values)
	}
	for _, key := range keys {
		k = binary.LittleEndian.AppendUint64(k, key)
	}
	for _, x := range values {
		v = binary.LittleEndian.AppendUint32(v, math.Float32bits(x))
	}
	return k, v
}
