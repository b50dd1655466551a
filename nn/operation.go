package nn

// Operation is an operation of one's own, for Apply. The same value may be applied any
// number of times.
type Operation struct {
	// Name stands in faults and exports.
	Name string
	// Forward writes all values of the result.
	Forward func(p *Pass)
	// Backward adds to the gradients of the inputs and parameters, given that of the result.
	// Nil: no gradient flows through the operation.
	Backward func(p *Pass)
}

// Pass is what an Operation's two functions work on. It is the operation's until they return.
type Pass struct {
	// Inputs and Params are what Apply was given. Backward adds to Params[i].Grad, of which
	// nobody reads those of frozen parameters.
	Inputs []*Tensor
	Params []*Param
	// Output is the result, of the shape that Apply was given.
	Output *Tensor
	// OutputGrad is, in Backward, the gradient of the result.
	OutputGrad []float32
	// InputGrads are, in Backward, the gradients of the inputs, zeros to add to; nil of those
	// whose gradient nobody asks for.
	InputGrads [][]float32

	t    *Tape
	keep [][]float32
}

// Run calls part(0) to part(parts-1) on the tape's threads, in any order, and returns when
// all have returned. How many there are shall depend on shapes alone, so that results do not depend
// on the number of threads.
func (p *Pass) Run(parts int, part func(i int)) { p.t.Run(parts, part) }

// Keep returns working memory i, of n values, which lasts from Forward to Backward. It is
// unspecified at first and whenever n grows.
func (p *Pass) Keep(i, n int) []float32 {
	for len(p.keep) <= i {
		p.keep = append(p.keep, nil)
	}
	p.keep[i] = sized(p.keep[i], n)
	return p.keep[i]
}

// Training says that a Backward may follow.
func (p *Pass) Training() bool { return !p.t.eval }

type operationOp struct {
	op   *Operation
	pass Pass
	y    Tensor
}

func (o *operationOp) operands() ([4]*Tensor, [4]*Param) { return [4]*Tensor{}, [4]*Param{} }
func (o *operationOp) allOperands() ([]*Tensor, []*Param) {
	if o.op.Backward == nil {
		return nil, nil
	}
	return o.pass.Inputs, o.pass.Params
}
func (o *operationOp) result() *Tensor { return &o.y }

// Apply records an operation of one's own whose result has the given shape. Its functions are
// not called in the dry run of Params.Arrange: there the result is zeros. inputs and params are
// copied. It panics where the operation has no Forward, or an input or a parameter is nil.
func (t *Tape) Apply(op *Operation, shape []int, inputs []*Tensor, params ...*Param) *Tensor {
	require(op != nil && op.Forward != nil, "operation", "one with a Forward")
	for i, x := range inputs {
		require(x != nil, op.Name, "inputs that are not nil; this one is", i)
	}
	for i, p := range params {
		require(p != nil, op.Name, "parameters that are not nil; this one is", i)
	}
	o := record[operationOp](t)
	o.op = op
	o.pass.Inputs, o.pass.Params = append(o.pass.Inputs[:0], inputs...), append(o.pass.Params[:0], params...)
	o.pass.Output, o.pass.t = &o.y, t
	y := t.begin(o, shape...)
	if !t.pool.dry {
		op.Forward(&o.pass)
	}
	return y
}

func (o *operationOp) backward(t *Tape) {
	p := &o.pass
	p.OutputGrad, p.InputGrads = o.y.grad, p.InputGrads[:0]
	for _, x := range p.Inputs {
		var dx []float32
		if x.needs {
			dx = t.grads.take(len(x.Data))
			clear(dx)
		}
		p.InputGrads = append(p.InputGrads, dx)
	}
	for _, w := range p.Params {
		if !w.touched {
			clear(w.Grad)
		}
	}
	o.op.Backward(p)
	for i, x := range p.Inputs {
		if x.needs {
			t.contribute(x, p.InputGrads[i])
		}
	}
	p.OutputGrad = nil
	clear(p.InputGrads)
}

// contribute adds dx, memory from t.grads, to the gradient of x.
func (t *Tape) contribute(x *Tensor, dx []float32) {
	if !x.has {
		t.grads.give(&x.grad)
		x.grad, x.has = dx, true
		return
	}
	t.merge(x, dx)
}

type detachOp struct {
	x *Tensor // no operand: no gradient flows to it
	y Tensor
}

func (o *detachOp) operands() ([4]*Tensor, [4]*Param) { return [4]*Tensor{}, [4]*Param{} }
func (o *detachOp) result() *Tensor                   { return &o.y }
func (o *detachOp) backward(*Tape)                    {}

// Detach is x, through which no gradient flows. The result shares x's memory.
func (t *Tape) Detach(x *Tensor) *Tensor {
	o := record[detachOp](t)
	o.x = x
	o.y.Shape, o.y.Data = append(o.y.Shape[:0], x.Shape...), x.Data
	t.note(o)
	return &o.y
}
