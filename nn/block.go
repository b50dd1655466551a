package nn

import "slices"

// Block is a part of a model, from one tensor to another. Methods of Tape with one operand, such as
// (*Tape).ReLU and (*Tape).Flatten, are Blocks.
type Block func(t *Tape, x *Tensor) *Tensor

// Sequential runs blocks in order; without blocks it returns x.
func Sequential(blocks ...Block) Block {
	return func(t *Tape, x *Tensor) *Tensor {
		for _, b := range blocks {
			x = b(t, x)
		}
		return x
	}
}

// Residual is block(x) + shortcut(x) (K. He and others 2016). With a nil shortcut it adds x.
func Residual(block, shortcut Block) Block {
	return func(t *Tape, x *Tensor) *Tensor {
		y := block(t, x)
		if shortcut != nil {
			x = shortcut(t, x)
		}
		requireOf(slices.Equal(x.Shape, y.Shape), "residual", "a block's result of the shortcut's shape", x.Shape, y.Shape...)
		return t.Add(y, x)
	}
}

// Dense is Tape.Dense with the layer, as a Block.
func (l Layer) Dense(act Activation) Block {
	return func(t *Tape, x *Tensor) *Tensor { return t.Dense(x, l, act) }
}

// Conv2D is Tape.Conv2D with the layer, as a Block.
func (l Layer) Conv2D(cfg Conv) Block {
	return func(t *Tape, x *Tensor) *Tensor { return t.Conv2D(x, l, cfg) }
}

// Stage is a part of a model: a function of tensors and parameters. It reads no other tensors, nor
// the batch, so that any process with the same parameters can run it. It must not keep x.
type Stage func(t *Tape, x []*Tensor) *Tensor

// OnDevice marks a stage for processes of another kind, such as "heter"; the result is part(t, x).
// Without Intercept it has no other effect and no cost.
func (t *Tape) OnDevice(place string, part Stage, x ...*Tensor) *Tensor {
	lo := len(t.crossing)
	t.crossing = append(t.crossing, x...)
	defer func() { t.crossing = t.crossing[:lo] }()
	own := t.crossing[lo:len(t.crossing):len(t.crossing)]
	if t.divert != nil {
		return t.divert(place, part, own)
	}
	return part(t, own)
}

// Intercept makes the tape call divert instead of running the stages of OnDevice; the tape uses its
// return value as the stage's result. nil ends the interception. divert must not keep x.
func (t *Tape) Intercept(divert func(place string, part Stage, x []*Tensor) *Tensor) {
	t.divert = divert
}
