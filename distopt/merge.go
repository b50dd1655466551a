package distopt

import (
	"math/bits"
	"slices"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/simd"
)

// merger merges the ranks' row-sparse gradients of a table. Its memory is reused.
type merger struct {
	kernels     *simd.Kernels
	keys, spare []uint64 // an id in the high half, the index of its row in the low half
	runs        []int    // end of each sorted run of keys
	ids, from   []int32  // ids of the result, and the first row of each
	repeats     []repeat
	later       []repeat // see common
	rows        []float32
}

// repeat is a row of the result to which another row of the same id is added.
type repeat struct{ to, from int32 }

// merge returns each id once, ascending, with the sum of its rows in rank order. ids concatenates
// the ranks' ids, counts[r] of rank r, each rank's ascending and unique; rows holds dim values per
// id. The result is valid until the next call. Cost: O(n (log s + dim)) for n ids of s ranks.
//
// Keys are sorted first, without a data-dependent branch: a processor cannot predict the order of
// several ranks' ids. Rows are fetched afterwards, many simultaneously.
func (m *merger) merge(dim int, counts []int, ids []int32, rows []float32) ([]int32, []float32) {
	m.list(counts, ids)
	for len(m.runs) > 1 {
		m.halve()
	}
	m.unite()
	m.rows = bytesview.Sized(m.rows, len(m.ids)*dim)
	m.kernels.Lookup(m.rows, rows, m.from, dim)
	for _, a := range m.repeats {
		m.kernels.Add(m.rows[int(a.to)*dim:][:dim], rows[int(a.from)*dim:][:dim])
	}
	return m.ids, m.rows
}

// part divides the sums of two ranks' rows into two lists, so that they need not be sorted: both
// can be applied sequentially. Rows of common ids are added in place to the first rank's rows and
// removed from the second's, which part returns. Cost: O(n + dim r) for r common ids.
func (m *merger) part(dim int, counts []int, ids []int32, rows []float32) ([]int32, []float32) {
	n := counts[0]
	first, second, theirs := ids[:n], ids[n:], rows[n*dim:]
	m.common(first, second)
	for _, a := range m.repeats {
		m.kernels.Add(rows[int(a.to)*dim:][:dim], theirs[int(a.from)*dim:][:dim])
	}
	kept, at := 0, 0
	for k := 0; k <= len(m.repeats); k++ { // the rows between two removed ones
		end := len(second)
		if k < len(m.repeats) {
			end = int(m.repeats[k].from)
		}
		if kept != at {
			copy(second[kept:], second[at:end])
			copy(theirs[kept*dim:], theirs[at*dim:end*dim])
		}
		kept, at = kept+end-at, end+1
	}
	return second[:kept], theirs[:kept*dim]
}

// split copies another rank's rows and does not change them. It returns the ids that are not in
// own, ascending, with their rows; rows of common ids are kept for fold. Cost: O(n + dim n) for n
// ids; each row is read once.
func (m *merger) split(dim int, own, ids []int32, rows []float32) ([]int32, []float32) {
	m.common(own, ids)
	rest := len(ids) - len(m.repeats)
	m.ids, m.rows = bytesview.Sized(m.ids, rest), bytesview.Sized(m.rows, len(ids)*dim)
	both := m.rows[rest*dim:]
	at, kept := 0, 0
	for k := 0; k <= len(m.repeats); k++ { // the rows between two common ones, then the latter
		end := len(ids)
		if k < len(m.repeats) {
			end = int(m.repeats[k].from)
			copy(both[k*dim:][:dim], rows[end*dim:])
		}
		copy(m.ids[kept:], ids[at:end])
		copy(m.rows[kept*dim:], rows[at*dim:end*dim])
		kept, at = kept+end-at, end+1
	}
	return m.ids, m.rows[:rest*dim]
}

// fold adds the common rows that split copied to own's rows, which then have the sums of merge.
func (m *merger) fold(dim int, rows []float32) {
	both := m.rows[len(m.ids)*dim:]
	for k, a := range m.repeats {
		m.kernels.Add(rows[int(a.to)*dim:][:dim], both[k*dim:][:dim])
	}
}

// common finds the ids in both lists, ascending, without a branch that depends on their order. Both
// lists are cut at the same id, and both halves are searched simultaneously, so that each runs
// while the other waits for memory.
func (m *merger) common(a, b []int32) {
	m.repeats = m.repeats[:0]
	cut, cutB := len(a)/2, 0
	if cut > 0 {
		cutB, _ = slices.BinarySearch(b, a[cut])
	}
	lowA, lowB, highA, highB := a[:cut], b[:cutB], a[cut:], b[cutB:]
	i, j, k, l := 0, 0, 0, 0
	m.later = m.later[:0]
	for i < len(lowA) && j < len(lowB) && k < len(highA) && l < len(highB) {
		x, y, z, w := lowA[i], lowB[j], highA[k], highB[l]
		if x == y {
			m.repeats = append(m.repeats, repeat{int32(i), int32(j)})
		}
		if z == w {
			m.later = append(m.later, repeat{int32(cut + k), int32(cutB + l)})
		}
		i, j = i+upTo(x, y), j+upTo(y, x)
		k, l = k+upTo(z, w), l+upTo(w, z)
	}
	m.repeats = commonFrom(m.repeats, a[:cut], b[:cutB], i, j)
	m.repeats = append(m.repeats, m.later...)
	m.repeats = commonFrom(m.repeats, a, b, cut+k, cutB+l)
}

// commonFrom continues common in one pair of lists, from indices i and j on.
func commonFrom(found []repeat, a, b []int32, i, j int) []repeat {
	for i < len(a) && j < len(b) {
		x, y := a[i], b[j]
		if x == y {
			found = append(found, repeat{int32(i), int32(j)})
		}
		i, j = i+upTo(x, y), j+upTo(y, x)
	}
	return found
}

// upTo is 1 if x <= y, else 0.
func upTo(x, y int32) int { return int(uint64(int64(x)-int64(y)-1) >> 63) }

// list makes sorted keys for each rank. For equal ids, the lower rank has the lower key.
func (m *merger) list(counts []int, ids []int32) {
	m.keys, m.spare = bytesview.Sized(m.keys, len(ids)), bytesview.Sized(m.spare, len(ids))
	for i, id := range ids {
		m.keys[i] = uint64(id)<<32 | uint64(i)
	}
	m.runs = m.runs[:0]
	at := 0
	for _, n := range counts {
		if at += n; n > 0 {
			m.runs = append(m.runs, at)
		}
	}
}

// halve merges every two neighbouring sorted runs, which halves their number.
func (m *merger) halve() {
	at, kept := 0, 0
	for i := 0; i < len(m.runs); i += 2 {
		mid, end := m.runs[i], m.runs[min(i+1, len(m.runs)-1)]
		mergeRuns(m.spare[at:end], m.keys[at:mid], m.keys[mid:end])
		m.runs[kept] = end
		at, kept = end, kept+1
	}
	m.runs = m.runs[:kept]
	m.keys, m.spare = m.spare, m.keys
}

// mergeRuns merges the sorted a and b into out.
func mergeRuns(out, a, b []uint64) {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		x, y := a[i], b[j]
		_, less := bits.Sub64(x, y, 0)
		out[i+j] = min(x, y)
		i += int(less)
		j += int(1 - less)
	}
	copy(out[i+j:], a[i:])
	copy(out[i+j:], b[j:]) // a or b is empty
}

// unite finds the first row of each id, and the other rows of the id.
func (m *merger) unite() {
	m.ids, m.from = bytesview.Sized(m.ids, len(m.keys)), bytesview.Sized(m.from, len(m.keys))
	m.repeats = m.repeats[:0]
	n, last := 0, int32(-1)
	for _, key := range m.keys {
		id, from := int32(key>>32), int32(uint32(key))
		if id == last {
			m.repeats = append(m.repeats, repeat{int32(n - 1), from})
			continue
		}
		m.ids[n], m.from[n] = id, from
		n, last = n+1, id
	}
	m.ids, m.from = m.ids[:n], m.from[:n]
}
