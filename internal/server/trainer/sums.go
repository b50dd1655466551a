package trainer

import (
	"github.com/ringo-ml/ringo/internal/simd"
)

// mean turns sums over a step's batches into means.
type mean struct {
	batches int
	kernels *simd.Kernels
	values  []float32 // buffer
}

// of divides x by the number of batches, and returns x.
func (m *mean) of(x []float32) []float32 {
	if m.batches > 1 {
		m.kernels.Scale(x, 1/float32(m.batches))
	}
	return x
}

// rowSums are the gradients of a table's rows, with their counts if any, added up over the batches
// of a step in their order.
type rowSums struct {
	unique keyIndex
	at     []int32 // buffer
	values []float32
}

// push sends the gradients of rows, or adds them to the step's sums.
func (t *Trainer) push(table int, keys []uint64, values []float32) error {
	if t.sums == nil {
		return t.session.PushRows(table, t.step, keys, values)
	}
	if len(keys) == 0 {
		return nil
	}
	s, width := &t.sums[table], len(values)/len(keys)
	s.at = append(s.at[:0], make([]int32, len(keys))...)
	s.unique.add(keys, s.at)
	for i, to := range s.at {
		row := values[i*width:][:width]
		if at := int(to) * width; at == len(s.values) {
			s.values = append(s.values, row...)
		} else {
			t.mean.kernels.Add(s.values[at:][:width], row)
		}
	}
	return nil
}

// pushSums sends the step's sums: means over the batches, or of a table that counts the sums
// themselves, which servers divide by the shows.
func (t *Trainer) pushSums() error {
	for i := range t.sums {
		s := &t.sums[i]
		if len(s.values) == 0 {
			continue
		}
		if !t.tables[i].counts {
			t.mean.of(s.values)
		}
		if err := t.session.PushRows(i, t.step, s.unique.keys, s.values); err != nil {
			return err
		}
		s.unique.begin()
		s.values = s.values[:0]
	}
	return nil
}
