package heter

import (
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// MicroBatch is a micro-batch at the cut: inputs and results of the stage.
type MicroBatch struct {
	// N is the number of samples.
	N int
	// Seed is the gradient of the step's loss with respect to the mean loss of this micro-batch:
	// the micro-batch's share of the step's samples.
	Seed float32
	// Index is the number of the micro-batch in its trainer's step, from 0.
	Index int
	// Eval selects an evaluation: outputs and loss, without gradients.
	Eval bool
	// BF16 selects products of bfloat16.
	BF16 bool
	// In are the values of Cut.In.
	In      [][]float32
	Labels  []int32
	Targets []float32

	// Out is the stage's result, Loss the mean over Terms samples or tokens, Correct the number of
	// correct ones.
	Out            []float32
	Loss           float32
	Terms, Correct int
	// Grads are the gradients of In, nil for inputs without Grad.
	Grads [][]float32
}

func (m *MicroBatch) size(c *Cut, n int) {
	m.Out = sized(m.Out, n*volume(c.Out))
	if len(m.Grads) != len(c.In) {
		m.Grads = make([][]float32, len(c.In))
	}
	for i, x := range c.In {
		if x.Grad {
			m.Grads[i] = sized(m.Grads[i], n*x.Len())
		}
	}
}

// Size allocates inputs and results of n samples.
func (m *MicroBatch) Size(c *Cut, n int) {
	m.N = n
	if len(m.In) != len(c.In) {
		m.In = make([][]float32, len(c.In))
	}
	for i, x := range c.In {
		m.In[i] = sized(m.In[i], n*x.Len())
	}
	m.Labels, m.Targets = sized(m.Labels, n*c.Labels), sized(m.Targets, n*c.Targets)
	m.size(c, n)
}

// sized returns x with n values, not cleared.
func sized[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n)
	}
	return x[:n]
}

// piece has memory for samples lo to hi-1 of a batch: their bags' keys are not contiguous there.
// The returned batch is valid until the next call, and while the source batch is.
type piece struct {
	values  nn.Tensor
	keys    []uint64
	from    []int32 // index in the batch, by key
	offsets []int32
}

func (p *piece) of(b model.Batch, lo, hi int) model.Batch {
	if lo == 0 && hi == b.N {
		return b
	}
	n := hi - lo
	out := model.Batch{N: n, IDs: some(b.IDs, b.N, lo, hi), Labels: some(b.Labels, b.N, lo, hi), Targets: some(b.Targets, b.N, lo, hi)}
	if b.Values != nil {
		p.values.Shape = append(append(p.values.Shape[:0], n), b.Values.Shape[1:]...)
		p.values.Data = some(b.Values.Data, b.N, lo, hi)
		out.Values = &p.values
	}
	if len(b.Bags.Offsets) > 0 {
		out.Bags = p.bags(b.Bags, lo, hi)
	}
	return out
}

func (p *piece) bags(b nn.Bags, lo, hi int) nn.Bags {
	n := hi - lo
	p.keys, p.from, p.offsets = p.keys[:0], p.from[:0], append(p.offsets[:0], 0)
	for slot := 0; slot+b.N < len(b.Offsets); slot += b.N {
		of := b.Offsets[slot+lo : slot+hi+1]
		base := int32(len(p.keys)) - of[0]
		p.keys = append(p.keys, b.Keys[of[0]:of[n]]...)
		for k := of[0]; k < of[n]; k++ {
			p.from = append(p.from, k)
		}
		for _, end := range of[1:] {
			p.offsets = append(p.offsets, end+base)
		}
	}
	return nn.Bags{Keys: p.keys, Offsets: p.offsets, N: n}
}

// some returns samples lo to hi-1 of the n samples in x.
func some[T any](x []T, n, lo, hi int) []T {
	each := len(x) / n
	return x[lo*each : hi*each]
}

// bounds returns the samples of micro-batch i; sizes differ by at most one sample.
func bounds(n, micros, i int) (lo, hi int) { return n * i / micros, n * (i + 1) / micros }
