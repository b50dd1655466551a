package nn

// Stage is a part of a model: a tensor made of those that it is given, and of parameters. It reads
// no other tensors, nor the batch, so that whoever has its parameters can run it, in this process
// or elsewhere. It must not keep x.
type Stage func(t *Tape, x []*Tensor) *Tensor

// OnDevice marks a part of a model as one for processes of another kind, such as "heter": its
// result is part(t, x). Where nobody diverts it that is all, and costs nothing.
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

// Intercept makes divert run what OnDevice marks, in place of the tape, which uses what it returns
// as the part's result; nil ends that. It must not keep x.
func (t *Tape) Intercept(divert func(place string, part Stage, x []*Tensor) *Tensor) {
	t.divert = divert
}
