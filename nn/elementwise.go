package nn

// Activation is applied to a layer's result in the same pass as the bias.
type Activation uint8

// Identity does nothing; ReLU is max(x, 0).
const (
	Identity Activation = iota
	ReLU
)

type reluOp struct {
	x *Tensor
	y Tensor
}

func (o *reluOp) operands() ([4]*Tensor, [4]*Param) { return [4]*Tensor{o.x}, [4]*Param{} }
func (o *reluOp) result() *Tensor                   { return &o.y }

// ReLU is max(x, 0), elementwise.
func (t *Tape) ReLU(x *Tensor) *Tensor {
	o := record[reluOp](t)
	o.x = x
	y := t.begin(o, x.Shape...)
	t.k.ReLU(y.Data, x.Data)
	return y
}

func (o *reluOp) backward(t *Tape) {
	dx := t.into(o.x)
	t.k.ReLUGrad(dx, o.y.grad, o.y.Data)
	t.merge(o.x, dx)
}

type addOp struct {
	a, b *Tensor
	y    Tensor
}

func (o *addOp) operands() ([4]*Tensor, [4]*Param) { return [4]*Tensor{o.a, o.b}, [4]*Param{} }
func (o *addOp) result() *Tensor                   { return &o.y }

// Add is a + b, elementwise, of tensors of the same shape.
func (t *Tape) Add(a, b *Tensor) *Tensor {
	want(len(a.Shape) == len(b.Shape), "add", "operands of the same shape", b.Shape...)
	for i, d := range a.Shape {
		want(d == b.Shape[i], "add", "operands of the same shape", b.Shape...)
	}
	o := record[addOp](t)
	o.a, o.b = a, b
	y := t.begin(o, a.Shape...)
	t.k.AddTo(y.Data, a.Data, b.Data)
	return y
}

func (o *addOp) backward(t *Tape) {
	for _, x := range [2]*Tensor{o.a, o.b} {
		if !x.needs {
			continue
		}
		dx := t.into(x)
		copy(dx, o.y.grad)
		t.merge(x, dx)
	}
}

type reshapeOp struct {
	x *Tensor
	y Tensor
}

func (o *reshapeOp) operands() ([4]*Tensor, [4]*Param) { return [4]*Tensor{o.x}, [4]*Param{} }
func (o *reshapeOp) result() *Tensor                   { return &o.y }

// Reshape gives the same values another shape of as many values. The result
// shares x's memory.
func (t *Tape) Reshape(x *Tensor, shape ...int) *Tensor {
	want(volume(shape) == len(x.Data), "reshape", "a shape of as many values", shape...)
	o := record[reshapeOp](t)
	o.x = x
	o.y.Shape = append(o.y.Shape[:0], shape...)
	o.y.Data = x.Data
	t.note(o)
	return &o.y
}

// Flatten makes one row of each sample: [n, ...] becomes [n, values].
func (t *Tape) Flatten(x *Tensor) *Tensor {
	want(len(x.Shape) > 0 && x.Shape[0] > 0, "flatten", "at least one sample", x.Shape...)
	return t.Reshape(x, x.Shape[0], len(x.Data)/x.Shape[0])
}

func (o *reshapeOp) backward(t *Tape) {
	if !o.x.has { // the only contribution so far: hand over the memory
		o.x.grad, o.y.grad = o.y.grad, o.x.grad
		o.x.has, o.y.has = true, false
		return
	}
	t.k.Add(o.x.grad, o.y.grad)
}
