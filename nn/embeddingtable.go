package nn

import (
	"math"

	"github.com/ringo-ml/ringo/internal/simd"
)

// tableLookupOp looks up rows of a row-sparse table: concatenated rows of ids, or sums of bags.
type tableLookupOp struct {
	ids  []int32
	tab  *Table
	rest *Tensor // values after the rows, or nil
	output

	// slots and the next fields describe bags, by slot.
	slots   int // 0: ids without bags, sample by sample
	steps   int // steps of sequences: bags of at most one id per sample
	first   int // slot of the batch with index 0 here
	pool    Pooling
	mapped  []int32   // memory for ids
	offsets []int32   // bags' beginnings in ids
	scales  []float32 // factors of sums
	scaled  bool      // some factor is not 1

	back    bool      // parts are of backward
	dy      []float32 // gradient of the summed rows, with y's layout
	scratch []float32 // memory for dy
}

func (o *tableLookupOp) operands() ([4]*Tensor, [4]*Param) {
	return [4]*Tensor{o.rest}, [4]*Param{}
}
func (o *tableLookupOp) table() *Table { return o.tab }

// EmbeddingTable looks up the rows ids of tab, len(ids)/n for each of n samples, and concatenates
// them: the result is [n, len(ids)/n*Dim]. If rest, [n, m], is not nil, its rows follow: the result
// is [n, len(ids)/n*Dim+m]. The caller must not change ids before Backward ends. Cost of the
// gradient: O(len(ids)·Dim), independent of the table's size. It panics with an *IndexError if an
// id is not a row.
func (t *Tape) EmbeddingTable(ids []int32, n int, tab *Table, rest *Tensor) *Tensor {
	tab.require(n > 0 && len(ids) > 0 && len(ids)%n == 0, "the same number of ids for each of n > 0 samples", len(ids), n)
	cols := len(ids) / n * tab.Dim
	if rest != nil {
		tab.require(len(rest.Shape) == 2 && rest.Shape[0] == n, "values [n, m] beside the rows", rest.Shape...)
		cols += rest.Shape[1]
	}
	tab.require(n*cols <= math.MaxUint32, "fewer than 2^32 values", n, cols) // see rowKeys
	checkIDs(tab.Name, ids, tab.held())
	o := record[tableLookupOp](t)
	o.ids, o.tab, o.rest, o.slots, o.steps, o.scaled = ids, tab, rest, 0, 0, false
	y := t.begin(o, n, cols)
	t.pool.run(o, (n+gatherRows-1)/gatherRows)
	return y
}

func (t *Table) require(ok bool, need string, got ...int) {
	if !ok {
		require(false, "embedding "+t.Name, need, got...)
	}
}

// part copies the rows of a range of samples, or sums a range of bags.
func (o *tableLookupOp) part(w *worker, i int) {
	if o.slots > 0 {
		lo, hi := i*gatherRows, min((i+1)*gatherRows, len(o.scales))
		if o.back {
			o.weigh(w, lo, hi)
		} else {
			o.gather(w, lo, hi)
		}
		return
	}
	n, cols, dim := o.y.Shape[0], o.y.Shape[1], o.tab.Dim
	each := len(o.ids) / n
	for s := i * gatherRows; s < min((i+1)*gatherRows, n); s++ {
		row := o.y.Data[s*cols:][:cols]
		w.k.Lookup(row[:each*dim], o.tab.Data, o.ids[s*each:][:each], dim)
		if o.rest != nil {
			copy(row[each*dim:], o.rest.Data[s*o.rest.Shape[1]:])
		}
	}
}

func (o *tableLookupOp) backward(t *Tape) {
	if o.dy = o.y.grad; o.scaled {
		o.scratch = sized(o.scratch, len(o.y.Data))
		o.dy, o.back = o.scratch, true
		t.pool.run(o, (len(o.scales)+gatherRows-1)/gatherRows)
		o.back = false
	}
	if parts := min(t.pool.threads(), len(o.ids)/mergeLeast); parts > 1 && len(o.tab.ids) == 0 {
		t.merging.run(t, o, parts)
	} else if len(o.ids) > 0 {
		keys, held := &t.merging.share(0).rowKeys, o.tab.held()
		keys.fill(o, 0, int32(held))
		keys.sort(held)
		o.tab.merge(t.k, keys.keys, o.dy)
	}
	o.dy = nil
	if o.rest != nil && o.rest.needs {
		dx := t.into(o.rest)
		n, cols, m := o.y.Shape[0], o.y.Shape[1], o.rest.Shape[1]
		for s := range n {
			copy(dx[s*m:][:m], o.y.grad[(s+1)*cols-m:])
		}
		t.merge(o.rest, dx)
	}
}

// merge adds gradients to the table's. A key has a row in its upper 32 bits, and in its lower 32
// bits the index in dy of a gradient of Dim values. For each row, gradients are added in the order
// of keys, after the row's present gradient.
func (t *Table) merge(k *simd.Kernels, keys []uint64, dy []float32) {
	oldIDs, oldGrads := t.ids, t.grads
	ids, grads := t.spareIDs[:0], t.spareGrads[:0]
	grads, ids = t.scratch(grads, ids, len(oldGrads)+len(keys)*t.Dim)
	take := func() { // next row of the old gradient
		ids, oldIDs = append(ids, oldIDs[0]), oldIDs[1:]
		grads, oldGrads = append(grads, oldGrads[:t.Dim]...), oldGrads[t.Dim:]
	}
	for _, key := range keys {
		id := int32(key >> 32)
		for len(oldIDs) > 0 && oldIDs[0] <= id {
			take()
		}
		from := dy[uint32(key):][:t.Dim]
		if n := len(ids); n == 0 || ids[n-1] != id {
			ids, grads = append(ids, id), append(grads, from...)
			continue
		}
		k.Add(grads[len(grads)-t.Dim:], from)
	}
	for len(oldIDs) > 0 {
		take()
	}
	t.spareIDs, t.spareGrads = t.ids, t.grads
	t.ids, t.grads = ids, grads
}

// scratch returns memory for n gradients and n ids: the arguments if they are large enough.
func (t *Table) scratch(grads []float32, ids []int32, n int) ([]float32, []int32) {
	if cap(grads) < n {
		return t.owner.takeRows(n, t.Dim) // maximum size, because later steps may have more rows
	}
	return grads, ids
}
