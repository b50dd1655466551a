package nn

import (
	"math/bits"
	"slices"
)

// mergeJob computes a table's first gradient of a step on several threads. Each part has a range of
// ids: it makes a key of each lookup of these ids, sorts the keys, and adds rows in the order of
// lookups. A part's keys therefore fit the cache of a core.
type mergeJob struct {
	o      *tableLookupOp
	bounds []int32     // first id of each part; then the number of rows
	shares []mergeKeys // one per part; a single thread uses the first
	write  bool        // second half
}

// mergeKeys are the keys of some of an operation's lookups.
type mergeKeys struct {
	rowKeys
	rows int     // number of rows, and then their beginning
	read float32 // dummy sum of fetch
	_    [64]byte
}

// fetch reads dy once, in order, into the cache: the rows are used in another order, which the
// processor cannot predict, and other cores have written most of them.
func (s *mergeKeys) fetch(dy []float32) {
	s.read = 0
	for i := 0; i < len(dy); i += lineValues {
		s.read += dy[i]
	}
}

const (
	// mergeLeast is the least number of lookups for which a separate part is worth its cost.
	mergeLeast = 1024
	// mergeSamples is the number of ids in the sample that determines the parts' ranges. Sizes of
	// parts then differ by some tenths.
	mergeSamples = 128
	// mergeFetches is the largest number of parts for which each part fetches all of dy. With more
	// parts, each uses too few of the rows.
	mergeFetches = 4
)

// share returns the keys of part i.
func (j *mergeJob) share(i int) *mergeKeys {
	for len(j.shares) <= i {
		j.shares = append(j.shares, mergeKeys{})
	}
	return &j.shares[i]
}

// run merges o's gradient in parts parts.
func (j *mergeJob) run(t *Tape, o *tableLookupOp, parts int) {
	j.o, j.write = o, false
	j.share(parts - 1)
	j.cut(o.ids, int32(o.tab.held()), parts)
	t.pool.run(j, parts)
	all := 0
	for i := range j.shares[:parts] {
		s := &j.shares[i]
		s.rows, all = all, all+s.rows
	}
	tab := o.tab
	grads, ids := tab.scratch(tab.grads, tab.ids, len(o.ids)*tab.Dim)
	tab.ids, tab.grads = ids[:all], grads[:all*tab.Dim]
	j.write = true
	t.pool.run(j, parts)
	j.o = nil
}

// cut divides the ids into ranges with about as many lookups each. No sum depends on the ranges,
// because all lookups of a row are in one part.
func (j *mergeJob) cut(ids []int32, held int32, parts int) {
	var samples [mergeSamples]int32
	for i := range samples {
		samples[i] = ids[i*len(ids)/mergeSamples]
	}
	slices.Sort(samples[:])
	j.bounds = append(j.bounds[:0], 0)
	for i := 1; i < parts; i++ {
		j.bounds = append(j.bounds, samples[i*mergeSamples/parts])
	}
	j.bounds = append(j.bounds, held)
}

func (j *mergeJob) part(w *worker, i int) {
	s, o := &j.shares[i], j.o
	if !j.write {
		s.fill(o, j.bounds[i], j.bounds[i+1])
		s.sort(o.tab.held())
		s.rows = 0
		for k, key := range s.keys {
			if k == 0 || s.keys[k-1]>>32 != key>>32 {
				s.rows++
			}
		}
		return
	}
	if len(j.bounds)-1 <= mergeFetches {
		s.fetch(o.dy)
	}
	dim, at := o.tab.Dim, s.rows-1
	for k, key := range s.keys {
		from := o.dy[uint32(key):][:dim]
		if k > 0 && s.keys[k-1]>>32 == key>>32 {
			w.k.Add(o.tab.grads[at*dim:][:dim], from)
			continue
		}
		at++
		o.tab.ids[at] = int32(key >> 32)
		copy(o.tab.grads[at*dim:][:dim], from)
	}
}

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

// fill makes a key of each of o's lookups of ids lo to hi-1. Rows of a bag have one gradient, and
// rows of a sample adjacent ones.
func (r *rowKeys) fill(o *tableLookupOp, lo, hi int32) {
	n, cols, dim := o.y.Shape[0], o.y.Shape[1], o.tab.Dim
	if cap(r.keys) <= len(o.ids) {
		r.keys, r.spare = make([]uint64, len(o.ids)+1), make([]uint64, len(o.ids)+1)
	}
	r.keys = r.keys[:0]
	if o.slots > 0 {
		for i := range o.scales {
			r.add(o.ids[o.offsets[i]:o.offsets[i+1]], lo, hi, o.place(i), 0)
		}
		return
	}
	each := len(o.ids) / n
	for s := range n {
		r.add(o.ids[s*each:][:each], lo, hi, s*cols, dim)
	}
}

// add appends keys of ids in [lo, hi). The gradient of ids[i] begins at at+i*step.
func (r *rowKeys) add(ids []int32, lo, hi int32, at, step int) {
	found, width := len(r.keys), uint32(hi-lo)
	keys := r.keys[:found+len(ids)+1]
	for _, id := range ids {
		keys[found] = uint64(id)<<32 | uint64(at)
		in := 0 // without a branch, which would be unpredictable
		if uint32(id-lo) < width {
			in = 1
		}
		found += in
		at += step
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
