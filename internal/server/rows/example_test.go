package rows_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/rowinit"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/optim"
)

// Rows are made when they are first pulled, and moved by their table's rule.
func Example() {
	t, err := rows.New(rows.Config{Name: "items", Dim: 2, Rule: optim.NewAdagradRows(0.1), Init: rowinit.Constant(1)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer t.Close()
	keys, weights := []uint64{7, 1 << 60}, make([]float32, 4)
	fmt.Println(t.PushOnce(0, 1, keys[:1], []float32{1, -1}, 1, &rows.Once{Create: true}))
	fmt.Println(t.Pull(keys, weights), weights, t.Len())
	// Output:
	// <nil>
	// <nil> [0.9 1.1 1 1] 2
}
