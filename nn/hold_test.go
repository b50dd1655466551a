package nn

import (
	"slices"
	"testing"
)

// TestHoldOfOtherRowsStartsNewSum: a table's gradient is over the rows in the present memory, and
// Hold of the same rows continues the sum.
func TestHoldOfOtherRowsStartsNewSum(t *testing.T) {
	ps := NewParams(1)
	ps.TablesElsewhere()
	table := ps.NewTable("rows", UniformRows(1), 10, 2)
	one, other := make([]float32, 4), make([]float32, 6)
	table.Hold(one, nil)
	table.ids, table.grads = append(table.ids, 1), append(table.grads, 3, 4)
	table.Hold(one, nil)
	if ids, grads := table.Grad(); !slices.Equal(ids, []int32{1}) || !slices.Equal(grads, []float32{3, 4}) {
		t.Errorf("the same rows: %v, %v", ids, grads)
	}
	table.Hold(other, nil)
	if ids, grads := table.Grad(); len(ids) > 0 || len(grads) > 0 {
		t.Errorf("other rows: %v, %v", ids, grads)
	}
}
