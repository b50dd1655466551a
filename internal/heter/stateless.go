package heter

import (
	"fmt"

	"github.com/ringo-ml/ringo/nn"
)

// StatelessStage is a RemoteStage of a trainer that has the part's parameters itself, and lends
// them for each step. Values and gradients are in the order of Cut.Slots, as a device has them.
type StatelessStage interface {
	RemoteStage
	// Lend makes values those that micro-batches are computed with from the next one on. It is
	// called between steps, or between evaluations.
	Lend(values []float32) error
	// RequestGradients says that the step's last micro-batch was sent: gradients may be on their
	// way while the trainer waits for the results.
	RequestGradients() error
	// Gradients waits for the sum over the step's micro-batches, which it writes to dst.
	Gradients(dst []float32) error
}

// remoteParams is what a trainer lends.
type remoteParams struct {
	to         StatelessStage
	cut        *Cut
	params     *nn.Params
	values     []float32 // as devices have them
	stageSlots map[int]bool
	slots      []int // of own, in the order of the arena
}

// SetParams makes the trainer lend the part's parameters, which are in ps as others are: their
// gradients are there after Backward, which reports them behind all others.
func (t *Trainer) SetParams(ps *nn.Params, to StatelessStage) error {
	l := &remoteParams{to: to, cut: t.cut, params: ps, stageSlots: map[int]bool{}}
	for _, s := range t.cut.Slots {
		l.values = grow(l.values, s.Offset+s.Padded)
		l.stageSlots[paramIndex(ps, s.Name)] = true
	}
	for i := range ps.Slots() {
		if l.stageSlots[i] {
			l.slots = append(l.slots, i)
		}
	}
	if len(l.slots) != len(t.cut.Slots) {
		return fmt.Errorf("heter: %d parameters of the part, of which the trainer trains %d", len(t.cut.Slots), len(l.slots))
	}
	t.loan = l
	return nil
}

func grow(x []float32, n int) []float32 {
	if n <= len(x) {
		return x
	}
	return make([]float32, n)
}

// paramIndex is a parameter's place among those that are trained, -1: it is not one.
func paramIndex(ps *nn.Params, name string) int {
	for i, s := range ps.Slots() {
		if s.Name == name {
			return i
		}
	}
	return -1
}

// send lends the parameters as they are.
func (l *remoteParams) send() error {
	if l == nil {
		return nil
	}
	if err := l.cut.Pack(l.params, l.values); err != nil {
		return err
	}
	return l.to.Lend(l.values)
}

func (l *remoteParams) collect() error {
	if l == nil {
		return nil
	}
	return l.to.RequestGradients()
}

// readyExceptStage is ready without the part's parameters, whose gradients come last.
func (l *remoteParams) readyExceptStage(ready func(slot int)) func(slot int) {
	if l == nil || ready == nil {
		return ready
	}
	return func(slot int) {
		if !l.stageSlots[slot] {
			ready(slot)
		}
	}
}

// take brings the part's gradients, and reports them.
func (l *remoteParams) take(ready func(slot int)) error {
	if l == nil {
		return nil
	}
	if err := l.to.Gradients(l.values); err != nil {
		return err
	}
	if err := l.cut.each(l.params, l.values, func(own *nn.Param, there []float32) { copy(own.Grad, there) }); err != nil {
		return err
	}
	for _, slot := range l.slots {
		if ready != nil {
			ready(slot)
		}
	}
	return nil
}
