package rows

// Stats are those of a table at one time, each stripe's at its own.
type Stats struct {
	Rows, MaxRows int
	// FreeRows are numbers of deleted rows that wait to be used again; their memory
	// is counted in Arrays.
	FreeRows int
	// Denied are keys that a Pull found without a row and Admit did not admit,
	// Dropped the gradients of such keys, Deleted the rows that Delete and Walk took
	// out; all since New.
	Denied, Dropped, Deleted int
	// Rebuilds are how often a segment of the index was laid out anew, Segments how
	// many there are, and Slots the places for keys in them.
	Segments, Rebuilds, Slots int
	Arrays                    []ArrayStats
}

// ArrayStats says what memory an array takes.
type ArrayStats struct {
	// Name is "weights", "state NAME", "usage", "index" or "segments".
	Name string
	// Used are the bytes up to the last row or chunk of the index ever used,
	// Resident the memory they take at most, whole pages.
	Used, Resident int
}

// Resident is the sum over the arrays.
func (s Stats) Resident() (bytes int) {
	for _, a := range s.Arrays {
		bytes += a.Resident
	}
	return bytes
}

// Used is the sum over the arrays.
func (s Stats) Used() (bytes int) {
	for _, a := range s.Arrays {
		bytes += a.Used
	}
	return bytes
}

// Len is the number of rows.
func (t *Table) Len() (rows int) {
	for i := range t.stripes {
		s := &t.stripes[i]
		s.Lock()
		rows += s.rows
		s.Unlock()
	}
	return rows
}

// Stats returns the table's statistics. Its cost is that of 64 locks.
func (t *Table) Stats() Stats {
	st := Stats{MaxRows: t.cfg.MaxRows, Segments: len(t.index.segments)}
	for i := range t.stripes {
		s := &t.stripes[i]
		s.Lock()
		st.Rows += s.rows
		st.Denied += s.denied
		st.Dropped += s.dropped
		st.Deleted += s.deleted
		s.Unlock()
	}
	if t.closed.Load() {
		return st
	}
	t.numbers.Lock()
	used := t.numbers.used
	st.FreeRows = t.numbers.idle
	t.numbers.Unlock()
	st.Arrays = append(st.Arrays, statsOf("weights", t.weights, used))
	for k, a := range t.state {
		st.Arrays = append(st.Arrays, statsOf("state "+t.parts[k].Name, a, used))
	}
	if t.usage != nil {
		st.Arrays = append(st.Arrays, statsOf("usage", t.usage, used))
	}
	chunks, idle, rebuilds := t.index.arena.chunks()
	st.Rebuilds = rebuilds
	st.Slots = (chunks - idle - 1) * chunkLines * slots
	st.Arrays = append(st.Arrays, statsOf("index", t.index.arena.lines, chunks*chunkLines))
	own := len(t.index.segments)*segmentBytes + 4*chunks
	st.Arrays = append(st.Arrays, ArrayStats{"segments", own, own})
	return st
}

// segmentBytes is the size of a segment without the numbers of its chunks.
const segmentBytes = 40

func statsOf[T any](name string, a *array[T], items int) ArrayStats {
	return ArrayStats{name, a.bytesOf(items), a.resident(items)}
}
