package onnx

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// pass is a trace of the model, which computes no values: tensors have shapes and unused memory.
type pass struct {
	batch model.Batch
	nodes []nn.Node
	outs  []*nn.Tensor
	place map[*nn.Tensor]int // index of the node of each result
}

// values and outside are results of placeOf for the batch's values, and for a tensor that is the
// result of no operation.
const (
	values  = -1
	outside = -2
)

// traced is the result of several traces of a model, with different batch sizes and input ids: the
// model's operations, and how their sizes depend on the batch size.
type traced struct {
	spec   model.Spec
	passes [len(sizes)]pass
	shapes map[*nn.Tensor][]dim // tensors of the first pass
	ids    []*lookup            // one per node; nil without ids
}

// run traces the model with n samples and ids id(index among all ids). The values are random, to
// detect computations of the model outside the tape.
func run(spec model.Spec, m model.Model, n int, id func(i int) int32) (p pass, err error) {
	defer func() {
		if r := recover(); r != nil {
			index, is := r.(*nn.IndexError)
			if !is {
				panic(r)
			}
			err = fmt.Errorf("onnx: the model cannot be traced: %w", index)
		}
	}()
	b := spec.Sample(n)
	for i := range b.IDs {
		b.IDs[i] = id(i)
	}
	if b.Values != nil {
		r := rand.New(rand.NewPCG(uint64(n), 3))
		for i := range b.Values.Data {
			b.Values.Data[i] = r.Float32()
		}
	}
	p.batch, p.place = b, map[*nn.Tensor]int{}
	p.nodes, err = nn.Trace(func(t *nn.Tape) {
		out := m.Forward(t, b)
		p.outs = slices.Clone(out.List())
	})
	m.Reset()
	for i := range p.nodes {
		p.nodes[i].IDs = slices.Clone(p.nodes[i].IDs) // because a model may reuse their memory
		p.place[p.nodes[i].Output] = i
	}
	if err == nil && len(p.outs) == 0 {
		err = errors.New("onnx: the model's Forward returns no outputs")
	}
	return p, err
}

// placeOf is the origin of a tensor.
func (p pass) placeOf(x *nn.Tensor) int {
	if x == nil || x == p.batch.Values {
		return values
	}
	if i, ok := p.place[x]; ok {
		return i
	}
	return outside
}

// idsAlone returns a pass with its ids alone, because tensors would keep unused memory.
func (p pass) idsAlone(want int) (pass, error) {
	if len(p.nodes) != want {
		return p, fmt.Errorf("onnx: the model has %d operations for some ids and %d for others: its Forward must do the same whatever they are", want, len(p.nodes))
	}
	out := pass{nodes: make([]nn.Node, want)}
	for i, n := range p.nodes {
		out.nodes[i].IDs = n.IDs
	}
	return out, nil
}

// study traces a model with batches of each of sizes, and for each bit of an index: in pass number
// `bit`, an id is bit number `bit` of its own index, counted from 1. The ids that an operation
// reads in all passes are therefore the bits of the indices of their origins. All ids are 0 or 1,
// valid in every table with two rows.
func study(spec model.Spec, m model.Model) (*traced, error) {
	t := &traced{spec: spec, shapes: map[*nn.Tensor][]dim{}}
	probes := make([][len(sizes)]pass, max(1, bits.Len(uint(slices.Max(sizes[:])*spec.IDs+1))))
	for bit := range probes {
		for s, n := range sizes {
			p, err := run(spec, m, n, func(i int) int32 { return int32((i+1)>>bit) & 1 })
			if err != nil {
				return nil, err
			}
			if bit > 0 {
				if p, err = p.idsAlone(len(probes[0][s].nodes)); err != nil {
					return nil, err
				}
			}
			probes[bit][s] = p
		}
	}
	t.passes = probes[0]
	if err := t.compare(); err != nil {
		return nil, err
	}
	return t, t.findIDs(m, probes)
}

// compare determines how shapes depend on the batch, and verifies that all passes have the same
// operations.
func (t *traced) compare() error {
	a := t.passes[0]
	for _, p := range t.passes[1:] {
		if len(p.nodes) != len(a.nodes) || len(p.outs) != len(a.outs) {
			return fmt.Errorf("onnx: the model has %d operations for %d samples and %d for %d: its Forward must do the same whatever the batch", len(a.nodes), a.batch.N, len(p.nodes), p.batch.N)
		}
	}
	if v := a.batch.Values; v != nil {
		t.shapes[v] = append([]dim{batch}, shapeOf(v.Shape[1:])...)
	}
	for i, n := range a.nodes {
		for _, p := range t.passes[1:] {
			if q := p.nodes[i]; !sameOperation(n, q) {
				return fmt.Errorf("onnx: operation %d, %s for %d samples and %s for %d, is another one: the model's Forward must do the same whatever the batch", i, n.Op, a.batch.N, q.Op, p.batch.N)
			}
		}
		for k := range n.Inputs {
			if err := t.compareInput(i, k); err != nil {
				return err
			}
		}
		if err := t.learn(i, func(p pass) *nn.Tensor { return p.nodes[i].Output }); err != nil {
			return err
		}
	}
	return nil
}

// sameOperation reports whether operations are equal except for operands and bounds of slices.
func sameOperation(a, b nn.Node) bool {
	same := a.Op == b.Op && a.Name == b.Name && a.Activation == b.Activation && a.Table == b.Table && len(a.Inputs) == len(b.Inputs)
	same = same && slices.Equal(a.Params, b.Params) && slices.Equal(a.Buffers, b.Buffers) && slices.Equal(a.Axes, b.Axes)
	for name, v := range a.Attrs {
		same = same && (a.Op == "slice" || b.Attrs[name] == v)
	}
	return same
}

// compareInput checks that input k of node i is equal in all passes, or constant in the program.
func (t *traced) compareInput(i, k int) error {
	a := t.passes[0]
	x := a.nodes[i].Inputs[k]
	for _, p := range t.passes[1:] {
		y := p.nodes[i].Inputs[k]
		if p.placeOf(y) != a.placeOf(x) || (x == nil) != (y == nil) {
			return fmt.Errorf("onnx: input %d of operation %d (%s) is another one for other batches: the model's Forward must do the same whatever the batch", k, i, a.nodes[i].Op)
		}
		if x == nil || a.placeOf(x) != outside || a.views(x) {
			continue
		}
		if !slices.Equal(x.Shape, y.Shape) || !slices.Equal(x.Data, y.Data) {
			return fmt.Errorf("onnx: input %d of operation %d (%s), of shape %v, is neither the batch's values nor the result of an operation, and changes with the batch: compute it by operations of the tape", k, i, a.nodes[i].Op, x.Shape)
		}
	}
	if x == nil || a.placeOf(x) != outside {
		return nil
	}
	return t.learn(i, func(p pass) *nn.Tensor { return p.nodes[i].Inputs[k] })
}

// views reports whether a tensor of the program is a view of the batch's values: a model may make a
// view instead of recording a reshape.
func (p pass) views(x *nn.Tensor) bool {
	v := p.batch.Values
	return v != nil && len(x.Data) == len(v.Data) && len(x.Data) > 0 && &x.Data[0] == &v.Data[0]
}

// learn determines how the shape of a tensor of operation i depends on the batch.
func (t *traced) learn(i int, of func(p pass) *nn.Tensor) error {
	var xs [len(sizes)]*nn.Tensor
	for s, p := range t.passes {
		xs[s] = of(p)
	}
	shape, ok := fitShape(xs)
	if !ok {
		return fmt.Errorf("onnx: operation %d (%s) has results of shape %v, %v and %v for %v samples: want sizes that grow by as much with each sample", i, t.passes[0].nodes[i].Op, xs[0].Shape, xs[1].Shape, xs[2].Shape, sizes)
	}
	t.shapes[xs[0]] = shape
	return nil
}

// attr returns an attribute of operation i as a function of the batch.
func (t *traced) attr(i int, name string) (dim, error) {
	var at [len(sizes)]int
	for s, p := range t.passes {
		at[s] = int(p.nodes[i].Attrs[name])
	}
	d, ok := fit(at)
	if !ok {
		return d, fmt.Errorf("onnx: %s of operation %d (%s) is %v for %v samples: want a number that grows by as much with each sample", name, i, t.passes[0].nodes[i].Op, at, sizes)
	}
	return d, nil
}

// live returns the operations that the outputs depend on. A model may compute more, such as inputs
// of its loss only: these are omitted, and need no form in ONNX.
func (t *traced) live() []bool {
	p := t.passes[0]
	live := make([]bool, len(p.nodes))
	mark := func(x *nn.Tensor) {
		if i := p.placeOf(x); x != nil && i >= 0 {
			live[i] = true
		}
	}
	for _, x := range p.outs {
		mark(x)
	}
	for i := len(live) - 1; i >= 0; i-- {
		if live[i] {
			for _, x := range p.nodes[i].Inputs {
				mark(x)
			}
		}
	}
	return live
}

func shapeOf(sizes []int) []dim {
	var out []dim
	for _, n := range sizes {
		out = append(out, fixed(n))
	}
	return out
}
