package model

// Counts are the sums of the loss and the metrics over passes, of one rank or of all.
type Counts struct {
	// Loss is the sum of the losses of all terms (samples or tokens), and Terms their number.
	Loss, Terms float64
	// Sums are the sums of all metrics, those of the first metric first.
	Sums []float64
}

// NewCounts returns empty counts of m.
func (m Model) NewCounts() Counts {
	n := 0
	for _, x := range m.Metrics {
		n += x.Sums
	}
	return Counts{Sums: make([]float64, n)}
}

// Fields returns pointers to the values that ranks add up, in a fixed order.
func (c *Counts) Fields() []*float64 {
	out := []*float64{&c.Loss, &c.Terms}
	for i := range c.Sums {
		out = append(out, &c.Sums[i])
	}
	return out
}

// Clear sets all counts to zero.
func (c *Counts) Clear() {
	c.Loss, c.Terms = 0, 0
	clear(c.Sums)
}

// Count adds the loss and the metrics of pass p, in training or in an evaluation, to c.
func (m Model) Count(c *Counts, p Pass, training bool) {
	c.Loss += float64(p.Loss.Mean.Data[0]) * float64(p.Loss.Terms)
	c.Terms += float64(p.Loss.Terms)
	rest := c.Sums
	for i := range m.Metrics {
		x := &m.Metrics[i]
		if x.Sums > 0 && (!training || !x.EvalOnly) {
			x.Add(rest[:x.Sums:x.Sums], p)
		}
		rest = rest[x.Sums:]
	}
}

// NewWords returns empty slices for Samples to append to, one per metric with Metric.Samples.
func (m Model) NewWords() (out [][]uint64) {
	for _, x := range m.Metrics {
		if x.Samples != nil {
			out = append(out, nil)
		}
	}
	return out
}

// Samples appends the words of pass p (see Metric.Samples) to words, one slice per metric.
func (m Model) Samples(words [][]uint64, p Pass) {
	for i := range m.Metrics {
		if x := &m.Metrics[i]; x.Samples != nil {
			words[0] = x.Samples(words[0], p)
			words = words[1:]
		}
	}
}

// Metrics are values of metrics by name. Metrics without a value are missing.
type Metrics map[string]float64

// Figures computes the metrics of training or, with the words of Samples, of an evaluation.
func (m Model) Figures(c Counts, words [][]uint64, training bool) Metrics {
	out := Metrics{}
	rest := c.Sums
	for _, x := range m.Metrics {
		var v float64
		ok := false
		switch {
		case x.Samples != nil && !training:
			v, ok = x.Order(words[0])
			words = words[1:]
		case x.Sums > 0 && (!training || !x.EvalOnly):
			v, ok = x.Value(rest[:x.Sums])
		}
		if rest = rest[x.Sums:]; ok && v-v == 0 {
			out[x.Name] = v
		}
	}
	return out
}
