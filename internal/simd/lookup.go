package simd

import "fmt"

// Lookup copies the rows ids of table, of dim floats each, to dst, one after the
// other. Rows lie all over a large table: the copies are made so that many
// misses of the caches are under way at once. It panics when an id is not a row.
func (k *Kernels) Lookup(dst, table []float32, ids []int32, dim int) {
	if dim < 1 || len(dst) != len(ids)*dim {
		panic(fmt.Sprintf("simd: Lookup: %d rows of %d floats into %d", len(ids), dim, len(dst)))
	}
	rows := uint32(len(table) / dim)
	for _, id := range ids {
		if uint32(id) >= rows {
			panic(fmt.Sprintf("simd: Lookup: row %d of a table of %d", id, rows))
		}
	}
	if k.seq.lookup == nil {
		for i, id := range ids {
			copy(dst[i*dim:][:dim], table[int(id)*dim:])
		}
		return
	}
	most := max(1, min(lookupRows, callFloats/dim))
	for len(ids) > 0 {
		n := min(len(ids), most)
		k.seq.lookup(&dst[0], &table[0], &ids[0], n, dim)
		dst, ids = dst[n*dim:], ids[n:]
	}
}

// lookupRows is how many rows one assembly call copies at most: each may have to
// come from memory.
const lookupRows = 512
