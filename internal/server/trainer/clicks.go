package trainer

import "fmt"

type clicks struct {
	counts []float32 // shows and clicks by row of a batch
	rows   []float32 // gradients with their counts
}

// Counts reports whether a table's rule needs shows and clicks: see PushClicks.
func (t *Trainer) Counts(table int) bool { return t.tables[table].counts }

// PushClicks is PushRows for a table with a counting rule: labels are the labels of the last
// Fetch's samples, 1 for a click. grads are gradients of the mean over these samples.
//
// PushClicks sends the gradient of the sum over the samples, the row's shows, which count each
// occurrence in the batch, and the shows in clicked samples. A rule that divides by the shows then
// computes a mean independent of the batch size and the number of trainers.
func (t *Trainer) PushClicks(table int, at []int32, grads []float32, labels []int32) error {
	of := t.tables[table]
	b, g := &t.batches[t.turn], &t.groups[of.group]
	p := &b.parts[of.group]
	n := len(labels)
	if fits := n > 0 && (g.Rows == 0 && n == b.of.N || g.Rows > 0 && len(p.inverse)%n == 0); !fits || len(grads) != len(at)*of.dim {
		return fmt.Errorf("ps: trainer: step %d: %d values for %d rows of %d, and %d ids or keys of samples with %d labels", t.step, len(grads), len(at), of.dim, len(p.inverse), n)
	}
	c := &t.clicks
	c.counts = grown(c.counts[:0], 2*len(p.unique.keys))
	clear(c.counts)
	g.count(&b.of, p.inverse, labels, c.counts)
	c.rows = grown(c.rows[:0], len(at)*(of.dim+2))[:0]
	for i, row := range at {
		for _, g := range grads[i*of.dim:][:of.dim] {
			c.rows = append(c.rows, g*float32(n))
		}
		c.rows = append(c.rows, c.counts[2*row], c.counts[2*row+1])
	}
	return t.push(table, t.keysOf(table, at), c.rows)
}
