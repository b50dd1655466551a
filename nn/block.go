package nn

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

// Residual is block(x) + shortcut(x) (K. He and others 2016). A nil shortcut is x, of the block's
// shape.
func Residual(block, shortcut Block) Block {
	return func(t *Tape, x *Tensor) *Tensor {
		y := block(t, x)
		if shortcut != nil {
			x = shortcut(t, x)
		}
		requireOf(sameShape(x, y), "residual", "a block's result of the shortcut's shape", x.Shape, y.Shape...)
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
