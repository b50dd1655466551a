package nn

// output is the result of an operation.
type output struct{ y Tensor }

func (o *output) result() *Tensor { return &o.y }

// unary is an operation with one operand and no parameters.
type unary struct {
	x *Tensor
	output
}

func (o *unary) operands() ([4]*Tensor, [4]*Param) { return [4]*Tensor{o.x}, [4]*Param{} }

// binary is an operation with two operands and no parameters; b may be nil.
type binary struct {
	a, b *Tensor
	output
}

func (o *binary) operands() ([4]*Tensor, [4]*Param) { return [4]*Tensor{o.a, o.b}, [4]*Param{} }

// Operation is a custom operation, for Apply. The same value may be applied repeatedly.
type Operation struct {
	// Name is the operation's name in errors and exports.
	Name string
	// Forward writes all values of the result.
	Forward func(p *Pass)
	// Backward adds to the gradients of the inputs and parameters, from the gradient of the result.
	// nil means that no gradient flows through the operation.
	Backward func(p *Pass)
}

// Pass is the argument of an Operation's functions, valid until they return.
type Pass struct {
	// Inputs and Params are the arguments of Apply. Backward adds to Params[i].Grad; gradients of
	// frozen parameters are ignored.
	Inputs []*Tensor
	Params []*Param
	// Output is the result, of the shape that Apply was given.
	Output *Tensor
	// OutputGrad is, in Backward, the gradient of the result.
	OutputGrad []float32
	// InputGrads are, in Backward, the gradients of the inputs, initially zeros; nil for an input
	// that needs no gradient.
	InputGrads [][]float32

	t    *Tape
	keep [][]float32
}

// Run calls part(0) to part(parts-1) on the tape's threads, in any order, and returns when all have
// returned. For results independent of the number of threads, parts must depend on shapes only.
func (p *Pass) Run(parts int, part func(i int)) { p.t.Run(parts, part) }

// Keep returns working memory i, of n values, valid from Forward to Backward. Values are
// unspecified initially and when n grows.
func (p *Pass) Keep(i, n int) []float32 {
	for len(p.keep) <= i {
		p.keep = append(p.keep, nil)
	}
	p.keep[i] = sized(p.keep[i], n)
	return p.keep[i]
}

// Training reports whether a Backward may follow.
func (p *Pass) Training() bool { return !p.t.eval }

type operationOp struct {
	output
	op   *Operation
	pass Pass
}

func (o *operationOp) operands() ([4]*Tensor, [4]*Param) { return [4]*Tensor{}, [4]*Param{} }
func (o *operationOp) allOperands() ([]*Tensor, []*Param) {
	if o.op.Backward == nil {
		return nil, nil
	}
	return o.pass.Inputs, o.pass.Params
}

// Apply records a custom operation with a result of the given shape. Params.Arrange records the
// model without computing: it does not call the functions, and the result is zeros. inputs and
// params are copied. It panics without a Forward, or if an input or a parameter is nil.
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

// contribute adds dx, which is memory of t.grads, to the gradient of x.
func (t *Tape) contribute(x *Tensor, dx []float32) {
	if !x.has {
		t.grads.give(&x.grad)
		x.grad, x.has = dx, true
		return
	}
	t.merge(x, dx)
}

type detachOp struct {
	output
	x *Tensor // no operand, so that no gradient flows to x
}

func (o *detachOp) operands() ([4]*Tensor, [4]*Param) { return [4]*Tensor{}, [4]*Param{} }
func (o *detachOp) backward(*Tape)                    {}

// Detach returns x as a tensor through which no gradient flows. The result shares x's memory.
func (t *Tape) Detach(x *Tensor) *Tensor {
	o := record[detachOp](t)
	o.x = x
	o.y.Shape, o.y.Data = append(o.y.Shape[:0], x.Shape...), x.Data
	t.note(o)
	return &o.y
}
