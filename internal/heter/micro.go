package heter

import (
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// MicroBatch is a micro-batch at the cut: what a part is given, and what it makes of it.
type MicroBatch struct {
	// N is how many samples it has.
	N int
	// Seed is the gradient of the step's loss with respect to the mean over this micro-batch: its share of the step's samples.
	Seed float32
	// Eval says that nothing but the outputs and the loss is wanted.
	Eval bool
	// In are the values that cross, as Cut.In names them.
	In      [][]float32
	Labels  []int32
	Targets []float32

	// Out is the part's result, and Loss the mean over Terms of it, of which Correct are as their labels.
	Out            []float32
	Loss           float32
	Terms, Correct int
	// Grads are the gradients of In, nil of those of which none comes back.
	Grads [][]float32
}

// size makes the memory of n samples' results.
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

// Size makes the memory of n samples, of what crosses there, too.
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

// sized is x with n values, of which nothing is known.
func sized[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n)
	}
	return x[:n]
}

// piece is some samples of a batch, in memory of its own where they do not follow each other.
type piece struct {
	values  nn.Tensor
	keys    []uint64
	from    []int32 // for each of the keys its place in the batch
	offsets []int32
}

// of makes a batch of samples lo to hi-1 of b. It is good until the next call, and as long as b is.
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

// bags are those of some samples.
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

// some is samples lo to hi-1 of n, which have as many values each.
func some[T any](x []T, n, lo, hi int) []T {
	each := len(x) / n
	return x[lo*each : hi*each]
}

// bounds are the samples of micro-batch i of so many of a batch of n: as many each, or one more in the first ones.
func bounds(n, micros, i int) (lo, hi int) { return n * i / micros, n * (i + 1) / micros }
