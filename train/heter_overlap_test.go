package train

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Of a gradient each row is sent once: early what the last micro-batch does not look up, and the rest when that is back, with all that it adds.
func TestFinal(t *testing.T) {
	const rows, dim = 50, 3
	r := rand.New(rand.NewPCG(1, 2))
	e := &earlyRows{round: math.MaxUint32 - 2} // whose rounds begin again on the way
	for range 20 {
		before, last := map[int32]bool{}, []int32{-1, rows, math.MaxInt32} // and keys that the table does not look up
		for range r.IntN(rows) {
			before[int32(r.IntN(rows))] = true
		}
		for range r.IntN(rows) {
			last = append(last, int32(r.IntN(rows)))
		}
		grad := func(last []int32, add float32) (ids []int32, values []float32) {
			for id := range int32(rows) {
				if more := slices.Contains(last, id); more || before[id] {
					ids = append(ids, id)
					for k := range dim {
						v := float32(dim*int(id) + k)
						if more {
							v += add
						}
						values = append(values, v)
					}
				}
			}
			return ids, values
		}
		e.begin(rows, last)
		ids, values := grad(nil, 0)
		got := map[int32][]float32{}
		take := func(ids []int32, values []float32) {
			if len(values) != dim*len(ids) {
				t.Fatalf("%d values of %d rows", len(values), len(ids))
			}
			for i, id := range ids {
				if got[id] != nil {
					t.Errorf("row %d is sent twice", id)
				}
				got[id] = slices.Clone(values[i*dim:][:dim])
			}
		}
		take(e.some(ids, values, dim, false))
		ids, values = grad(last, 0.5)
		take(e.some(ids, values, dim, true))
		if len(got) != len(ids) {
			t.Errorf("%d rows are sent of %d", len(got), len(ids))
		}
		for i, id := range ids {
			if !slices.Equal(got[id], values[i*dim:][:dim]) {
				t.Errorf("row %d: %v is sent, its gradient is %v", id, got[id], values[i*dim:][:dim])
			}
		}
	}
}
