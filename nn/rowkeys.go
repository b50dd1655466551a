package nn

import "math/bits"

// rowKeys are a table's lookups in the order of rows: an id in the high half, the beginning of its
// gradient in the low half.
type rowKeys struct {
	keys, spare []uint64
	counts      [3][radix]int32
}

const (
	radixBits = 11
	radix     = 1 << radixBits
)

// fill makes a key of each of o's lookups of ids lo to hi-1.
func (r *rowKeys) fill(o *tableLookupOp, lo, hi int32) {
	n, cols, dim := o.y.Shape[0], o.y.Shape[1], o.tab.Dim
	if cap(r.keys) <= len(o.ids) {
		r.keys, r.spare = make([]uint64, len(o.ids)+1), make([]uint64, len(o.ids)+1)
	}
	keys, found, width := r.keys[:len(o.ids)+1], 0, uint32(hi-lo)
	if o.slots > 0 {
		for i := range o.scales {
			ids := o.ids[o.offsets[i]:o.offsets[i+1]]
			if len(ids) == 0 {
				continue
			}
			at := uint64(o.place(i))
			for _, id := range ids {
				keys[found] = uint64(id)<<32 | at
				in := 0
				if uint32(id-lo) < width {
					in = 1
				}
				found += in
			}
		}
		r.keys = keys[:found]
		return
	}
	each := len(o.ids) / n
	for s := range n {
		at := s * cols
		for _, id := range o.ids[s*each:][:each] {
			keys[found] = uint64(id)<<32 | uint64(at)
			in := 0 // without a branch, which would be unpredictable
			if uint32(id-lo) < width {
				in = 1
			}
			found += in
			at += dim
		}
	}
	r.keys = keys[:found]
}

// sort sorts the keys by id, stably: a radix sort, O(k) with a pass per 11 bits of the largest id.
func (r *rowKeys) sort(held int) {
	passes := (bits.Len(uint(max(1, held)-1)) + radixBits - 1) / radixBits
	r.spare = r.spare[:len(r.keys)]
	clear(r.counts[:passes])
	for _, key := range r.keys {
		for p := range passes {
			r.counts[p][key>>(32+p*radixBits)%radix]++
		}
	}
	for p := range passes {
		counts, shift, at := &r.counts[p], 32+p*radixBits, int32(0)
		for i, c := range counts {
			counts[i] = at
			at += c
		}
		for _, key := range r.keys {
			c := &counts[key>>shift%radix]
			r.spare[*c] = key
			*c++
		}
		r.keys, r.spare = r.spare, r.keys
	}
}
