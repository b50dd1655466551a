package train

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"strings"
)

// values is a named part of what a model has learnt.
type values struct {
	name string
	data []float32
}

// learnt returns the parameters, the tables and the buffers of the replica,
// sorted by name.
func (r *Replica) learnt() []values {
	var all []values
	for _, p := range r.Params.List() {
		all = append(all, values{p.Name, p.Data})
	}
	for _, t := range r.Params.Tables() {
		all = append(all, values{t.Name, t.Data})
	}
	for _, b := range r.Params.BufferList() {
		all = append(all, values{b.Name, b.Data})
	}
	slices.SortFunc(all, func(a, b values) int { return strings.Compare(a.name, b.name) })
	return all
}

// Hash is the SHA-256 of what the model has learnt, parameters, tables and
// running statistics: name and little-endian values of each, sorted by name, so
// that it does not depend on how memory is laid out.
func (r *Replica) Hash() [sha256.Size]byte {
	const piece = 4096 // values, so that a large table needs no copy of itself
	h := sha256.New()
	buf := make([]byte, 0, 4*piece)
	for _, v := range r.learnt() {
		h.Write(append(buf[:0], v.name+"\x00"...))
		for part := range slices.Chunk(v.data, piece) {
			buf = buf[:0]
			for _, x := range part {
				buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(x))
			}
			h.Write(buf)
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}
