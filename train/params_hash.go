package train

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"strings"
)

type values struct {
	name string
	data []float32
	// each, if set, shows the values in pieces instead of data.
	each func(func([]float32) error) error
}

// learnt returns the parameters, tables and buffers of the replica, sorted by name.
func (r *Replica) learnt() []values {
	var all []values
	for _, p := range r.Params.List() {
		all = append(all, values{name: p.Name, data: p.Data})
	}
	for i, t := range r.Params.Tables() {
		if each, ok := r.params.rows(i); ok {
			all = append(all, values{name: t.Name, data: t.Data, each: each})
		}
	}
	for _, b := range r.Params.BufferList() {
		all = append(all, values{name: b.Name, data: b.Data})
	}
	slices.SortFunc(all, func(a, b values) int { return strings.Compare(a.name, b.name) })
	return all
}

// hash returns the SHA-256 of parameters, tables and running statistics: name and little-endian
// values of each, sorted by name, independent of memory layout. copies covers only values with a
// copy on each rank: ranks read rows elsewhere alike, but servers may delete some between two
// reads. Neither covers rows of keys on servers, possibly too many to read and known to servers
// only. An error comes from the servers of a table.
func (r *Replica) hash() (sum, copies [sha256.Size]byte, err error) {
	all := r.learnt()
	if sum, err = hashOf(all); err != nil {
		return sum, copies, err
	}
	here := slices.DeleteFunc(slices.Clone(all), func(v values) bool { return v.each != nil })
	if len(here) == len(all) {
		return sum, sum, nil
	}
	copies, err = hashOf(here)
	return sum, copies, err
}

func hashOf(all []values) (sum [sha256.Size]byte, err error) {
	const piece = 4096 // values, so that a large table needs no copy
	h := sha256.New()
	buf := make([]byte, 0, 4*piece)
	write := func(data []float32) error {
		for part := range slices.Chunk(data, piece) {
			buf = buf[:0]
			for _, x := range part {
				buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(x))
			}
			h.Write(buf)
		}
		return nil
	}
	for _, v := range all {
		h.Write(append(buf[:0], v.name+"\x00"...))
		if v.each == nil {
			_ = write(v.data)
		} else if err := v.each(write); err != nil {
			return sum, err
		}
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}
