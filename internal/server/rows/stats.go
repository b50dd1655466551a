package rows

// Stats are a table's statistics; stripes are from different moments.
type Stats struct {
	Rows, MaxRows int
	// Denied counts keys that Admit rejected in a Pull since New, Dropped gradients of such keys.
	Denied, Dropped int
	Arrays          []ArrayStats
}

// ArrayStats describes the memory of an array.
type ArrayStats struct {
	Name string
	// Used is the size up to the last row or chunk ever used, Resident the maximum memory for it in
	// whole pages; both in bytes.
	Used, Resident int
}

// Resident returns the sum over the arrays.
func (s Stats) Resident() (bytes int) {
	for _, a := range s.Arrays {
		bytes += a.Resident
	}
	return bytes
}

// Len returns the number of rows.
func (t *Table) Len() (rows int) {
	for i := range t.stripes {
		s := &t.stripes[i]
		s.Lock()
		rows += s.rows
		s.Unlock()
	}
	return rows
}

// Stats returns the table's statistics. Cost: 64 locks.
func (t *Table) Stats() Stats {
	st := Stats{MaxRows: t.cfg.MaxRows}
	for i := range t.stripes {
		s := &t.stripes[i]
		s.Lock()
		st.Rows += s.rows
		st.Denied += s.denied
		st.Dropped += s.dropped
		s.Unlock()
	}
	if t.closed.Load() {
		return st
	}
	t.numbers.Lock()
	used := t.numbers.used
	t.numbers.Unlock()
	st.Arrays = append(st.Arrays, statsOf("weights", t.weights, used))
	for k, a := range t.state {
		st.Arrays = append(st.Arrays, statsOf("state "+t.parts[k].Name, a, used))
	}
	if t.usage != nil {
		st.Arrays = append(st.Arrays, statsOf("usage", t.usage, used))
	}
	chunks, _, _ := t.index.arena.chunks()
	st.Arrays = append(st.Arrays, statsOf("index", t.index.arena.lines, chunks*chunkLines))
	own := len(t.index.segments)*segmentBytes + 4*chunks
	st.Arrays = append(st.Arrays, ArrayStats{"segments", own, own})
	return st
}

// segmentBytes is the size of a segment without its chunk numbers.
const segmentBytes = 40

func statsOf[T any](name string, a *array[T], items int) ArrayStats {
	return ArrayStats{name, a.bytesOf(items), a.resident(items)}
}
