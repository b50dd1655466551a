package distopt

// merger joins the ranks' row-sparse gradients of one table into one. Its
// memory is reused.
type merger struct {
	heap []cursor
	ids  []int32
	rows []float32
}

// cursor walks over one rank's ids. In the heap the smallest id comes first,
// and of equal ids that of the lowest rank.
type cursor struct {
	id, rank int32
	at, end  int // of the next id, in all ranks' ids
}

func (a cursor) before(b cursor) bool {
	return a.id < b.id || a.id == b.id && a.rank < b.rank
}

// merge returns each id once, ascending, with the sum of its rows in rank order.
// ids holds the ranks' ids one after the other, counts[r] of rank r, each
// rank's ascending and unique; rows holds dim values for each. With n ids of s
// ranks it takes O(n (log s + dim)). The result is good until the next call.
func (m *merger) merge(dim int, counts []int, ids []int32, rows []float32) ([]int32, []float32) {
	m.ids, m.rows = roomFor(m.ids, len(ids))[:0], roomFor(m.rows, len(rows))[:0]
	m.heap = m.heap[:0]
	at := 0
	for r, n := range counts {
		if n > 0 {
			m.heap = append(m.heap, cursor{id: ids[at], rank: int32(r), at: at, end: at + n})
		}
		at += n
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.sink(i)
	}
	for len(m.heap) > 0 {
		m.take(rows[m.heap[0].at*dim:][:dim])
		m.advance(ids)
	}
	return m.ids, m.rows
}

// take adds one row of the heap's first id to the result.
func (m *merger) take(row []float32) {
	id, last := m.heap[0].id, len(m.ids)-1
	if last < 0 || m.ids[last] != id {
		m.ids, m.rows = append(m.ids, id), append(m.rows, row...)
		return
	}
	sum := m.rows[len(m.rows)-len(row):]
	for i, v := range row {
		sum[i] += v
	}
}

// advance moves the heap's first cursor on.
func (m *merger) advance(ids []int32) {
	first := &m.heap[0]
	if first.at++; first.at < first.end {
		first.id = ids[first.at]
	} else {
		last := len(m.heap) - 1
		m.heap[0] = m.heap[last]
		m.heap = m.heap[:last]
	}
	m.sink(0)
}

// sink restores the heap below i.
func (m *merger) sink(i int) {
	for {
		child := 2*i + 1
		if child >= len(m.heap) {
			return
		}
		if child+1 < len(m.heap) && m.heap[child+1].before(m.heap[child]) {
			child++
		}
		if m.heap[i].before(m.heap[child]) {
			return
		}
		m.heap[i], m.heap[child] = m.heap[child], m.heap[i]
		i = child
	}
}

// roomFor returns n values in x's memory, or in new one with room to grow: the
// number of rows differs from step to step.
func roomFor[T any](x []T, n int) []T {
	if cap(x) < n {
		x = make([]T, n+n/4)
	}
	return x[:n]
}
