package engine

import "fmt"

// fits reports a push that the table has no place for.
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

// scale is what bsp multiplies the sum of trainers' gradients by: for their mean, or 1 where the
// rule divides by how many samples they are the sum of.
func (t *sparse) scale(mean float32) float32 {
	if t.rule != nil {
		return 1
	}
	return mean
}
