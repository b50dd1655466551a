package shard

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/server/rows"
)

// imageHead is the size of an image's header. A row's image in the store, little-endian:
//
//	0  2  Last
//	2  2  Touches
//	4  4  the day up to which the row is aged
//	8     its values
//
// Rows in the store are aged when they are loaded: daily aging would rewrite all of them.
const imageHead = 8

func (t *Table) imageBytes() int { return imageHead + 4*t.rows.Width() }

// putImage writes a row's image to b, of length imageBytes.
func putImage(b []byte, r *rows.Row, day uint32) {
	binary.LittleEndian.PutUint16(b, r.Usage.Last)
	binary.LittleEndian.PutUint16(b[2:], r.Usage.Touches)
	binary.LittleEndian.PutUint32(b[4:], day)
	b = putFloats(b[imageHead:], r.Weights)
	for _, part := range r.State {
		b = putFloats(b, part)
	}
}

// putFloats writes values to the front of b and returns the rest.
func putFloats(b []byte, values []float32) []byte {
	for i, v := range values {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
	return b[4*len(values):]
}

func getFloats(values []float32, b []byte) {
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
}

// readImage decodes an image into values, as rows.Table.Import takes them, and returns its usage
// and day.
func (t *Table) readImage(key uint64, b []byte, values []float32) (f rows.Usage, day uint32, err error) {
	if len(b) != t.imageBytes() {
		return f, 0, fmt.Errorf("key %d of table %d in the store has %d bytes, want %d: it was not written by this table", key, t.cfg.Number, len(b), t.imageBytes())
	}
	getFloats(values, b[imageHead:])
	f = rows.Usage{Last: binary.LittleEndian.Uint16(b), Touches: binary.LittleEndian.Uint16(b[2:])}
	return f, binary.LittleEndian.Uint32(b[4:]), nil
}
