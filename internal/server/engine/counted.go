package engine

import "fmt"

func (t *sparse) fits(c *change) error {
	if len(c.values) != len(c.keys)*t.width {
		return fmt.Errorf("table %q: %d values for %d rows of %d", t.Name, len(c.values), len(c.keys), t.width)
	}
	if t.rule == nil {
		return nil
	}
	if err := t.rule.CheckCounts(t.Dim, c.values); err != nil {
		return fmt.Errorf("table %q: %w", t.Name, err)
	}
	return nil
}

// scale returns the factor for the sum of trainers' gradients in bsp: mean, or 1 if the table's
// rule divides by numbers of samples.
func (t *sparse) scale(mean float32) float32 {
	if t.rule != nil {
		return 1
	}
	return mean
}
