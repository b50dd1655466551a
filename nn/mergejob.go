package nn

// mergeJob is Table.merge on several threads, for a table that has no gradient yet: the sorted keys are cut where ids end,
// so that each row is one part's, which adds up its gradients in their order.
type mergeJob struct {
	tab    *Table
	keys   []uint64
	dy     []float32
	starts []int // by part: its first key, and behind the last the number of keys
	rows   []int // by part: how many rows it has, and then where they begin
	write  bool
}

// mergeKeys is how many keys are worth a part.
const mergeKeys = 1024

// run merges the keys in so many parts.
func (j *mergeJob) run(t *Tape, tab *Table, keys []uint64, dy []float32, parts int) {
	j.tab, j.keys, j.dy, j.write = tab, keys, dy, false
	j.starts, j.rows = j.starts[:0], j.rows[:0]
	for i := range parts {
		at := len(keys) * i / parts
		for at > 0 && at < len(keys) && keys[at]>>32 == keys[at-1]>>32 {
			at++
		}
		j.starts, j.rows = append(j.starts, at), append(j.rows, 0)
	}
	j.starts = append(j.starts, len(keys))
	t.pool.run(j, parts)
	all := 0
	for i, n := range j.rows {
		j.rows[i] = all
		all += n
	}
	grads, ids := tab.room(tab.grads, tab.ids, len(keys)*tab.Dim)
	tab.ids, tab.grads = ids[:all], grads[:all*tab.Dim]
	j.write = true
	t.pool.run(j, parts)
	j.tab, j.keys, j.dy = nil, nil, nil
}

func (j *mergeJob) part(_ *worker, i int) {
	keys := j.keys[j.starts[i]:j.starts[i+1]]
	if !j.write {
		for k, key := range keys {
			if k == 0 || keys[k-1]>>32 != key>>32 {
				j.rows[i]++
			}
		}
		return
	}
	dim := j.tab.Dim
	at := j.rows[i] - 1
	for k, key := range keys {
		from := j.dy[uint32(key):][:dim]
		if k > 0 && keys[k-1]>>32 == key>>32 {
			to := j.tab.grads[at*dim:][:dim]
			for c, v := range from {
				to[c] += v
			}
			continue
		}
		at++
		j.tab.ids[at] = int32(key >> 32)
		copy(j.tab.grads[at*dim:][:dim], from)
	}
}
