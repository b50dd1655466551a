package nn

import "slices"

// mergeJob is a table's gradient on several threads, where it has none yet. Each part has a range
// of ids: it makes keys of the lookups of these, sorts them, and then adds up rows in the order of
// their lookups. So it sorts in its own core's cache.
type mergeJob struct {
	o      *tableLookupOp
	bounds []int32     // by part: the first id it may have; behind the last, one more than there are
	shares []mergeKeys // by part; the first is also that of one thread
	write  bool        // the second half
}

// mergeKeys are the keys of some of an operation's lookups.
type mergeKeys struct {
	rowKeys
	rows int     // how many rows there are of them, and then where they begin
	read float32 // of fetch
	_    [64]byte
}

// fetch reads dy once, in order: rows are then taken from it in an order that no prefetcher
// foresees, and other cores have written most of it.
func (s *mergeKeys) fetch(dy []float32) {
	s.read = 0
	for i := 0; i < len(dy); i += lineValues {
		s.read += dy[i]
	}
}

const (
	// mergeLeast is how many lookups are worth a part.
	mergeLeast = 1024
	// mergeSamples is how many ids are looked at to find bounds: parts are some tenths of their
	// size apart.
	mergeSamples = 128
	// mergeFetches is of how many parts each takes so many of the rows that it fetches all.
	mergeFetches = 4
)

// share is the keys of part i.
func (j *mergeJob) share(i int) *mergeKeys {
	for len(j.shares) <= i {
		j.shares = append(j.shares, mergeKeys{})
	}
	return &j.shares[i]
}

// run merges o's gradient in so many parts.
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

// cut finds bounds between which about as many of the ids lie. No sum depends on them: a row is one
// part's.
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
