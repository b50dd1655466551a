package nn

import (
	"math"
	"math/bits"
)

// Bags are the keys of N samples in one or more slots, ordered by slot and then by sample. Bag
// slot*N+sample is Keys[Offsets[slot*N+sample]:Offsets[slot*N+sample+1]], and may be empty.
type Bags struct {
	Keys    []uint64
	Offsets []int32 // slots*N+1 values, not decreasing
	N       int     // samples

	first int // index in the batch of the first slot
}

// Slots returns slots lo to hi-1, in the same memory.
func (b Bags) Slots(lo, hi int) Bags {
	b.Offsets = b.Offsets[lo*b.N : hi*b.N+1]
	b.first += lo
	return b
}

// Len is the number of slots.
func (b Bags) Len() int {
	if b.N == 0 || len(b.Offsets) == 0 {
		return 0
	}
	return (len(b.Offsets) - 1) / b.N
}

// RowOf is the row of a key in a table of rows rows: the upper bits of the product of rows with a
// hash of the key, SplitMix64's finalizer. If there are far more keys than rows, all rows get about
// the same number of keys. Different keys may share a row.
func RowOf(key uint64, rows int) int32 {
	z := key + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	hi, _ := bits.Mul64(z^z>>31, uint64(rows))
	return int32(hi)
}

// Pooling is EmbeddingBag's reduction of the rows of a bag.
type Pooling uint8

const (
	// SumPool is the sum of the rows.
	SumPool Pooling = iota
	// MeanPool is the sum divided by the number of rows.
	MeanPool
	// SqrtPool is the sum divided by the square root of the number of rows.
	SqrtPool
)

// scale is the factor of the sum of n rows.
func (p Pooling) scale(n int32) float32 {
	switch {
	case n < 2 || p == SumPool:
		return 1
	case p == MeanPool:
		return 1 / float32(n)
	}
	return float32(1 / math.Sqrt(float64(n)))
}

// EmbeddingBag sums, for each sample and slot, the rows of tab of the keys of the bag, and
// concatenates the sums: the result is [N, slots*Dim], with zeros for empty bags. If rest, [N, m],
// is not nil, its rows follow. The row of a key is RowOf or, for a table with rows in another
// process, the row set by Hold. Rows are added in the order of keys, and gradients of a row in the
// order of its keys in the bags, so that the number of threads changes no bit. The caller must not
// change bags before Backward ends. Cost of the gradient: O(keys·Dim) for any size of the table.
func (t *Tape) EmbeddingBag(bags Bags, tab *Table, pool Pooling, rest *Tensor) *Tensor {
	return t.lookUpBags(bags, tab, pool, rest, 0)
}

// EmbeddingSequence returns the rows of the last steps keys of one slot, in order: the result is
// [N, steps, Dim], with zeros after a shorter sequence. bags has the lengths.
func (t *Tape) EmbeddingSequence(bags Bags, tab *Table, steps int) *Tensor {
	tab.require(steps > 0 && bags.Len() == 1, "the bags of one slot, of which so many steps are wanted", bags.Len(), steps)
	return t.lookUpBags(bags, tab, SumPool, nil, steps)
}

// lookUpBags is EmbeddingBag, or with steps EmbeddingSequence.
func (t *Tape) lookUpBags(bags Bags, tab *Table, pool Pooling, rest *Tensor, steps int) *Tensor {
	n, slots := bags.N, bags.Len()
	tab.require(n > 0 && slots > 0 && len(bags.Offsets) == slots*n+1, "bags of n > 0 samples in one or more slots", len(bags.Offsets), n)
	o := record[tableLookupOp](t)
	cols := max(1, steps) * slots * tab.Dim
	o.tab, o.rest, o.slots, o.steps, o.first, o.pool = tab, rest, slots, steps, bags.first, pool
	if rest != nil {
		tab.require(len(rest.Shape) == 2 && rest.Shape[0] == n, "values [n, m] beside the rows", rest.Shape...)
		cols += rest.Shape[1]
	}
	tab.require(n*cols <= math.MaxUint32, "fewer than 2^32 values", n, cols) // see rowKeys
	if t.pool.dry {
		tab.note(bags.first, slots, steps)
	}
	o.mapped = tab.rowsOf(bags, steps, o.mapped)
	o.ids = o.mapped
	o.alone(bags, steps)
	if tab.owner.elsewhere {
		checkIDs(tab.Name, o.ids, tab.held())
	}
	o.scales = sized(o.scales, len(o.offsets)-1)
	o.scaled = false
	for i := range o.scales {
		o.scales[i] = pool.scale(o.offsets[i+1] - o.offsets[i])
		o.scaled = o.scaled || o.scales[i] != 1
	}
	if steps > 0 {
		t.begin(o, n, steps, tab.Dim)
	} else {
		t.begin(o, n, cols)
	}
	t.pool.run(o, (len(o.scales)+gatherRows-1)/gatherRows)
	return &o.y
}

// alone sets o's offsets to those of bags, but from 0 on. If steps is above 0, each of the steps
// keys becomes a separate bag, which is empty after the sequence's end.
func (o *tableLookupOp) alone(bags Bags, steps int) {
	o.offsets = append(o.offsets[:0], 0)
	base := bags.Offsets[0]
	if steps == 0 {
		for _, end := range bags.Offsets[1:] {
			o.offsets = append(o.offsets, end-base)
		}
		return
	}
	kept := o.mapped[:0]
	for i := range bags.N {
		of := o.mapped[bags.Offsets[i]-base : bags.Offsets[i+1]-base]
		of = of[max(0, len(of)-steps):]
		for k := range steps {
			if k < len(of) {
				kept = append(kept, of[k])
			}
			o.offsets = append(o.offsets, int32(len(kept)))
		}
	}
	o.ids = kept
}

func (o *tableLookupOp) place(i int) int {
	n, dim := o.y.Shape[0], o.tab.Dim
	if o.steps > 0 {
		return i * dim
	}
	return i%n*o.y.Shape[1] + i/n*dim
}

// gather sums a range of bags; bags of one slot are equally far apart.
func (o *tableLookupOp) gather(w *worker, lo, hi int) {
	n, dim, gap := o.y.Shape[0], o.tab.Dim, o.tab.Dim
	for lo < hi {
		end := hi
		if o.steps == 0 {
			end, gap = min(hi, (lo/n+1)*n), o.y.Shape[1]
		}
		w.k.Bags(o.y.Data[o.place(lo):], gap, o.tab.Data, o.ids, o.offsets[lo:end+1], o.scales[lo:end], dim)
		if o.rest != nil && lo < n { // once, together with the first bag of a sample
			m := o.rest.Shape[1]
			for i := lo; i < end; i++ {
				copy(o.y.Data[(i+1)*gap-m:][:m], o.rest.Data[i*m:])
			}
		}
		lo = end
	}
}

// weigh writes the gradient of a range of bags' sums, multiplied by their scales.
func (o *tableLookupOp) weigh(w *worker, lo, hi int) {
	dim := o.tab.Dim
	for i := lo; i < hi; i++ {
		at := o.place(i)
		to := o.dy[at:][:dim]
		copy(to, o.y.grad[at:])
		w.k.Scale(to, o.scales[i])
	}
}

// rowsOf returns the rows of the keys of bags: of the last steps keys of each bag, or of all keys
// if steps is 0. The result is in the memory of rows.
func (t *Table) rowsOf(bags Bags, steps int, rows []int32) []int32 {
	lo, hi := bags.Offsets[0], bags.Offsets[len(bags.Offsets)-1]
	rows = rows[:0]
	if t.owner.elsewhere {
		t.require(lo == hi || len(t.at) == len(bags.Keys) && t.reading(bags.first, bags.Len(), steps), "keys whose rows are held", bags.first, bags.Len(), len(t.at))
		if lo == hi {
			return rows
		}
		return append(rows, t.at[lo:hi]...)
	}
	for _, key := range bags.Keys[lo:hi] {
		rows = append(rows, RowOf(key, t.Rows))
	}
	return rows
}
