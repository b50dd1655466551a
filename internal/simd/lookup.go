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

// Bags sums rows of a table, of dim floats each: bag i of len(offsets)-1 is the rows
// ids[offsets[i]:offsets[i+1]], and
//
//	dst[i*gap:][:dim] = scales[i] * (0 + row + row + …)
//
// in order, so that every level gives the same bits. A bag may be empty. Rows are scattered over a
// large table and prefetched several rows ahead, across bags. offsets never decrease and end within
// ids; it panics if an id is not a row.
func (k *Kernels) Bags(dst []float32, gap int, table []float32, ids, offsets []int32, scales []float32, dim int) {
	n := len(offsets) - 1
	if dim < 1 || gap < dim || n < 0 || len(scales) != n || n > 0 && len(dst) < (n-1)*gap+dim {
		panic(fmt.Sprintf("simd: Bags: %d bags of %d floats with %d scales, %d apart, into %d", n, dim, len(scales), gap, len(dst)))
	}
	if n == 0 {
		return
	}
	for i, begin := range offsets[:n] {
		if end := offsets[i+1]; begin < 0 || end < begin || int(end) > len(ids) {
			panic(fmt.Sprintf("simd: Bags: bag %d begins at %d and ends at %d of %d rows", i, begin, end, len(ids)))
		}
	}
	rows := uint32(len(table) / dim)
	for _, id := range ids[offsets[0]:offsets[n]] {
		if uint32(id) >= rows {
			panic(fmt.Sprintf("simd: Bags: row %d of a table of %d", id, rows))
		}
	}
	most := int32(max(1, min(lookupRows, callFloats/dim))) // rows of a call, and bags, because bags may be empty
	for at := 0; at < n; {
		end := at
		for end < n && end-at < int(most) && offsets[end+1]-offsets[at] <= most {
			end++
		}
		if k.seq.bags == nil || end == at || offsets[end] == offsets[at] {
			end = at + 1
			k.bag(dst[at*gap:][:dim], table, ids[offsets[at]:offsets[end]], scales[at])
		} else {
			k.seq.bags(&dst[at*gap], gap, &table[0], &ids[0], &offsets[at], &scales[at], end-at, dim)
		}
		at = end
	}
}

// bag is Bags for a single bag, of any length.
func (k *Kernels) bag(dst, table []float32, ids []int32, scale float32) {
	clear(dst)
	for _, id := range ids {
		k.Add(dst, table[int(id)*len(dst):][:len(dst)])
	}
	k.Scale(dst, scale)
}
