package trainer

import "fmt"

// clicks are what a push to a click table has besides gradients.
type clicks struct {
	wanted bool      // by the table's rule
	counts []float32 // shows and clicks of each row of a batch
	rows   []float32 // gradients with their counts
}

// Counts says that the table's rule wants shows and clicks: see PushClicks.
func (t *Trainer) Counts() bool { return t.clicks.wanted }

// PushClicks is PushRows for a table whose rule counts: labels are those of the samples of the last
// Fetch, 1 for a click, and its ids were those of one sample after the other, as many each. grads are of
// the mean over these samples.
//
// What travels is the gradient of the sum over them, the row's shows, one for each of the batch's ids that
// names it, so that a sample that has it twice counts twice, and how many of these are of clicked samples. A rule that divides
// by the shows then has the mean over them, whatever the batch's size and however many trainers
// add up theirs.
func (t *Trainer) PushClicks(at []int32, grads []float32, labels []int32) error {
	mapped := t.batches[t.turn].mapped
	if len(grads) != len(at)*t.dim || len(labels) == 0 || len(mapped)%len(labels) != 0 {
		return fmt.Errorf("ps: trainer: step %d: %d values for %d rows of %d, and %d ids of %d samples", t.step, len(grads), len(at), t.dim, len(mapped), len(labels))
	}
	c := &t.clicks
	c.count(mapped, len(t.batches[t.turn].seen.keys), labels)
	c.rows = grown(c.rows[:0], len(at)*(t.dim+2))[:0]
	samples := float32(len(labels))
	for i, row := range at {
		for _, g := range grads[i*t.dim:][:t.dim] {
			c.rows = append(c.rows, g*samples)
		}
		c.rows = append(c.rows, c.counts[2*row], c.counts[2*row+1])
	}
	return t.session.PushRows(table, t.step, t.keysOf(at), c.rows)
}

// count counts shows and clicks of each of so many rows.
func (c *clicks) count(mapped []int32, rows int, labels []int32) {
	c.counts = grown(c.counts[:0], 2*rows)
	clear(c.counts)
	slots := len(mapped) / len(labels)
	for i, label := range labels {
		click := float32(0)
		if label == 1 {
			click = 1
		}
		for _, row := range mapped[i*slots:][:slots] {
			c.counts[2*row]++
			c.counts[2*row+1] += click
		}
	}
}
