package nn

// Stage is a part of a model: a function of tensors and parameters. It reads no other tensors, nor
// the batch, so that any process with its parameters can run it. It must not retain x.
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

// Intercept makes divert run the stages of OnDevice instead of the tape; the tape uses its return
// value as the stage's result. nil ends the interception. divert must not retain x.
func (t *Tape) Intercept(divert func(place string, part Stage, x []*Tensor) *Tensor) {
	t.divert = divert
}
