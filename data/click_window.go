package data

// clickWindow is rows that are shuffled among each other.
type clickWindow struct {
	blocks []*clickBlock
	rows   []clickPlace // those that were given out first, in their order
	given  int
	order  rng // of the shuffle; not used without one

	begin StreamPosition // at its first row
	bad   int            // lines up to the end of its last block, in this epoch
}

// clickPlace is a row of a window: which block, and which row of that.
type clickPlace struct{ block, row int32 }

// add appends rows [lo, hi) of a block.
func (w *clickWindow) add(b *clickBlock, lo, hi int) {
	b.users++
	w.blocks = append(w.blocks, b)
	n := int32(len(w.blocks) - 1)
	for row := lo; row < hi; row++ {
		w.rows = append(w.rows, clickPlace{n, int32(row)})
	}
}

// left is how many rows were not given out.
func (w *clickWindow) left() int { return len(w.rows) - w.given }

// skip gives out n rows to nobody, in the order in which take would.
func (w *clickWindow) skip(n int, shuffle bool) {
	for range n {
		w.draw(shuffle)
	}
}

// draw gives out a row: with shuffle any of those that are left (a step of
// Fisher and Yates', so that the cost of shuffling is spread over the batches).
func (w *clickWindow) draw(shuffle bool) clickPlace {
	if shuffle {
		i := w.given + w.order.below(w.left())
		w.rows[w.given], w.rows[i] = w.rows[i], w.rows[w.given]
	}
	w.given++
	return w.rows[w.given-1]
}

// take copies the next n rows to a batch of that size.
func (w *clickWindow) take(b *Batch, n int, shuffle bool) {
	for i := range n {
		at := w.draw(shuffle)
		r, row := &w.blocks[at.block].clickRows, int(at.row)
		b.Labels[i] = r.labels[row]
		copy(b.Values[i*clickNumbers:(i+1)*clickNumbers], r.numbers[row*clickNumbers:])
		if len(b.IDs) > 0 {
			copy(b.IDs[i*clickSlots:(i+1)*clickSlots], r.ids[row*clickSlots:])
		}
		if len(b.Keys) > 0 {
			copy(b.Keys[i*clickSlots:(i+1)*clickSlots], r.keys[row*clickSlots:])
		}
	}
}
