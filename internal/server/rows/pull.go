package rows

import (
	"fmt"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/internal/rowinit"
	"github.com/ringo-ml/ringo/internal/simd"
)

// Pull writes the weights of keys' rows to dst, len(keys)*Dim values, in order. A key without a row
// gets one; for a key rejected by Admit, dst has the initial weights. A batch may have duplicate
// keys.
//
// With ErrFull, dst still has all existing rows; the rest has initial weights.
func (t *Table) Pull(keys []uint64, dst []float32) error {
	b, err := t.beginValues("Pull", keys, len(dst), t.cfg.Dim)
	if err != nil {
		return err
	}
	t.each(b, func(s *stripe, lo, hi int) {
		if misses := b.locate(t.index, lo, hi); misses > 0 {
			denied, e := t.create(s, b, lo, misses, false)
			s.denied += denied
			err = firstOf(err, e)
		}
		n := t.copyOut(b, lo, hi, dst)
		if t.usage != nil {
			t.touch(b.rows[:n])
		}
	})
	t.giveBatch(b)
	if err != nil {
		return t.fault(err)
	}
	return nil
}

// Peek writes the weights of keys' rows to dst, len(keys)*Dim values, without a change of the
// table. For a key without a row Peek writes the initial weights and appends the key's index to
// missing, in no order. Peek returns missing.
func (t *Table) Peek(keys []uint64, dst []float32, missing []int32) ([]int32, error) {
	b, err := t.beginValues("Peek", keys, len(dst), t.cfg.Dim)
	if err != nil {
		return missing, err
	}
	t.each(b, func(_ *stripe, lo, hi int) {
		missing = b.addMissing(missing, lo, b.locate(t.index, lo, hi))
		t.copyOut(b, lo, hi, dst)
	})
	t.giveBatch(b)
	return missing, nil
}

func (t *Table) update(kernels *simd.Kernels, b *batch, lo, hi int, grads []float32, scale float32) {
	n := b.compact(lo, hi, nil)
	rows, mask := b.rows[:n], t.weights.mask
	sum := fetch(t.weights, rows)
	for _, a := range t.state {
		sum += fetch(a, rows)
	}
	b.sink += math.Float32bits(sum)
	dim, width := t.cfg.Dim, t.grad
	kernels.Lookup(b.grads[:n*width], grads, b.from[:n], width)
	for at := 0; at < n; {
		of := uint32(rows[at]) >> t.weights.shift
		end := at
		for ; end < n && uint32(rows[end])>>t.weights.shift == of; end++ {
			b.places[end] = int32(uint32(rows[end]) & mask)
		}
		if t.counted == nil {
			t.cfg.Rule.UpdateRows(t.weights.slabs[of], t.slab[of].state, dim, b.places[at:end], b.grads[at*dim:end*dim], scale)
		} else {
			b.due = t.counted.UpdateCounted(t.weights.slabs[of], t.slab[of].state, dim, b.places[at:end], b.grads[at*width:end*width], scale, b.due[:0])
			t.extend(b, lo, hi, at, of)
		}
		at = end
	}
	if t.usage != nil {
		t.change(rows)
	}
}

// extend initialises, once per row, the remaining weights of due rows; b.due counts from index at.
func (t *Table) extend(b *batch, lo, hi, at int, slab uint32) {
	for _, i := range b.due {
		place := at + int(i)
		key := b.keys[lo+slices.Index(b.pos[lo:hi], b.from[place])]
		t.cfg.Init(b.initial, rowinit.Row(t.stream, key))
		t.counted.Extend(t.weights.slabs[slab], t.slab[slab].state, t.cfg.Dim, b.places[place], b.initial)
	}
}

// fetch loads a value of each cache line of rows, to overlap their misses. The sum only forces the
// loads.
func fetch(a *array[float32], rows []int32) (sum float32) {
	if a.flat == nil {
		for _, row := range rows {
			sum += a.item(uint32(row))[0]
		}
		return sum
	}
	if a.width <= 16 {
		for _, row := range rows {
			sum += a.flat[int(row)*a.width]
		}
		return sum
	}
	for _, row := range rows {
		values := a.flat[int(row)*a.width:][:a.width]
		for at := 0; at < len(values); at += 16 {
			sum += values[at]
		}
	}
	return sum
}

// touch marks rows as touched. The epoch is read under their stripe's lock, so that a row's epoch
// never decreases.
func (t *Table) touch(rows []int32) {
	now := t.epoch.Load()
	for _, row := range rows {
		x := &t.usage.item(uint32(row))[0]
		*x = touched(*x, now)
	}
}

// change marks rows of a locked stripe as changed.
func (t *Table) change(rows []int32) {
	now := t.epoch.Load()
	for _, row := range rows {
		x := &t.usage.item(uint32(row))[0]
		*x = changed(*x, now)
	}
}

// copyOut writes the weights of a block's rows to dst, initial ones for missing rows, and returns
// the number of rows found.
func (t *Table) copyOut(b *batch, lo, hi int, dst []float32) (n int) {
	dim := t.cfg.Dim
	n = b.compact(lo, hi, func(i int) {
		t.first(dst[int(b.pos[i])*dim:][:dim], rowinit.Row(t.stream, b.keys[i]))
	})
	t.copyRows(b, n, dst)
	return n
}

// copyRows writes the weights of a block's first n rows, compacted, to dst.
func (t *Table) copyRows(b *batch, n int, dst []float32) {
	dim := t.cfg.Dim
	rows, from := b.rows[:n], b.from[:n]
	b.sink += math.Float32bits(fetch(t.weights, rows))
	flat := t.weights.flat
	for i, row := range rows {
		if to := dst[int(from[i])*dim:][:dim]; flat != nil {
			copyRow(to, flat[int(row)*dim:][:dim])
		} else {
			copyRow(to, t.weights.item(uint32(row)))
		}
	}
}

// copyRow copies whole cache lines without a call.
func copyRow(dst, src []float32) {
	for len(src) >= 16 && len(dst) >= 16 {
		line := *(*[16]float32)(src)
		*(*[16]float32)(dst) = line
		dst, src = dst[16:], src[16:]
	}
	if len(src) > 0 {
		copy(dst, src)
	}
}

func (t *Table) beginValues(op string, keys []uint64, values, width int) (*batch, error) {
	if values != len(keys)*width {
		return nil, t.fault(fmt.Errorf("%s: %d values for %d rows of %d", op, values, len(keys), width))
	}
	return t.begin(keys)
}

// addMissing appends the batch indices of a block's misses.
func (b *batch) addMissing(missing []int32, lo, misses int) []int32 {
	for _, i := range b.misses[:misses] {
		missing = append(missing, b.pos[lo+int(i)])
	}
	return missing
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
