package randbatch

import (
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/nn"
)

// Each model trains on a random batch: values, ids and labels have the right number and range, are
// equal each time, and differ between ranks.
func TestBatch(t *testing.T) {
	for _, name := range []string{"mlp", "lstm", "ctr-dnn"} {
		spec, err := models.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		ps := nn.NewOutline()
		spec.Build(ps, model.Options{Batch: 1})
		rows := spec.Classes
		for _, table := range ps.Tables() {
			rows = table.Rows
		}
		const n = 3
		b, again, other := Batch(spec, ps, n, 0), Batch(spec, ps, n, 0), Batch(spec, ps, n, 1)
		values := len(b.Values)
		for _, d := range append([]int{n}, spec.Input...) {
			if values%d != 0 {
				t.Errorf("%s: %d values of %v", name, len(b.Values), spec.Input)
			}
			values /= d
		}
		if len(b.IDs) != n*spec.IDs || len(b.Labels) != n*max(1, spec.Labels) || len(spec.Input) > 0 && values != 1 {
			t.Errorf("%s: %d values, %d ids, %d labels", name, len(b.Values), len(b.IDs), len(b.Labels))
		}
		below := func(most int) func(int32) bool { return func(v int32) bool { return v < 0 || int(v) >= most } }
		if slices.ContainsFunc(b.IDs, below(rows)) || slices.ContainsFunc(b.Labels, below(spec.Classes)) {
			t.Errorf("%s: ids and labels beyond %d and %d", name, rows, spec.Classes)
		}
		if !slices.Equal(b.Values, again.Values) || !slices.Equal(b.IDs, again.IDs) || !slices.Equal(b.Labels, again.Labels) {
			t.Errorf("%s: two batches of one rank differ", name)
		}
		if slices.Equal(b.Values, other.Values) && slices.Equal(b.IDs, other.IDs) {
			t.Errorf("%s: two ranks have the same", name)
		}
	}
}
