package simd

import "fmt"

// Lookup copies the rows ids of table, of dim floats each, to dst in order. Rows are scattered over
// a large table, so the copies overlap many cache misses. It panics if an id is not a row.
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

// lookupRows is the maximum number of rows in one assembly call, because each may come from memory.
const lookupRows = 512
