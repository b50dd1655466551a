package heter

import (
	"fmt"

	"github.com/ringo-ml/ringo/nn"
)

// StatelessStage is a RemoteStage without state: the trainer owns the stage's parameters, and sends
// them for each step. Values and gradients are in the order of Cut.Slots.
type StatelessStage interface {
	RemoteStage
	// Lend sets the parameters of the next micro-batches, between steps or evaluations.
	Lend(values []float32) error
	// RequestGradients follows the step's last Send, so that results and gradients overlap.
	RequestGradients() error
	// Gradients waits for the sum over the step's micro-batches, and writes it to dst.
	Gradients(dst []float32) error
}

// remoteParams are the stage's parameters of a trainer that owns them.
type remoteParams struct {
	to         StatelessStage
	cut        *Cut
	params     *nn.Params
	values     []float32 // order of Cut.Slots
	stageSlots map[int]bool
	slots      []int // ascending indices of stageSlots
}

// SetParams makes the trainer send the stage's parameters in ps for each step. Backward writes
// their gradients to ps and reports them after all other gradients.
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

// paramIndex returns the index of a trained parameter, -1 for other names.
func paramIndex(ps *nn.Params, name string) int {
	for i, s := range ps.Slots() {
		if s.Name == name {
			return i
		}
	}
	return -1
}

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

// readyExceptStage is ready without the stage's parameters, because their gradients arrive last.
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

// take receives the stage's gradients, and reports them.
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
