package trainer

import (
	"errors"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/simd"
)

// mean turns sums over a step's batches into means, scaled down to Config.ClipNorm.
type mean struct {
	factor  float32
	kernels *simd.Kernels
	values  []float32 // buffer
}

// batchShare is the factor from a sum over batches to the mean.
func batchShare(batches int) float32 { return 1 / float32(max(1, batches)) }

// of multiplies x by the factor, and returns x.
func (m *mean) of(x []float32) []float32 {
	if m.factor != 1 {
		m.kernels.Scale(x, m.factor)
	}
	return x
}

// clip limits the norm of the step's gradient, and sends the requests that were held back until all
// gradients of the step were present. Gradients of rows are sent later, with the same factor.
func (t *Trainer) clip() {
	if t.cfg.ClipNorm == 0 || t.clipped {
		return
	}
	sum := 0.0
	for _, op := range t.held {
		x := op.X
		if op.Sparse != nil {
			x = op.Sparse.Value
		}
		sum += t.mean.kernels.SumSquares(x)
	}
	for i := range t.sums {
		sum += t.mean.kernels.SumSquares(t.sums[i].values)
	}
	norm := float64(t.mean.factor) * math.Sqrt(sum)
	if norm-norm != 0 {
		t.err = errors.Join(t.err, fmt.Errorf("ps: trainer: step %d: the norm of the gradient is %v: lower the learning rate, or check the data and the model", t.step, norm))
	} else if norm > t.cfg.ClipNorm {
		t.mean.factor *= float32(t.cfg.ClipNorm / norm)
	}
	t.clipped = true
	for _, op := range t.held {
		t.Start(op)
	}
	t.held = t.held[:0]
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

// pushSums sends the step's sums of rows' gradients: divided by the number of batches or, for a
// table that counts shows and clicks, as they are, because servers divide by the row's shows.
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
