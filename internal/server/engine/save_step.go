package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/server/snapshot"
)

// order is a checkpoint that SaveStep has made.
type order struct{ number, step uint64 }

// SaveStep writes this server's part of a checkpoint of the whole job after a step of its run, as Checkpoint
// does, and returns its number. All trainers have flushed what they pushed, and push nothing until all
// servers have saved: that is theirs to see to. The number stays valid until SaveStep is called with an oldest above the
// step. A step that was saved already is not saved again: trainers ask until they have the answer.
func (e *Engine) SaveStep(ctx context.Context, step, oldest uint64) (number uint64, err error) {
	if step == 0 || oldest > step {
		return 0, fmt.Errorf("tables: a checkpoint of the job after step %d, the oldest to be kept after step %d: want at least 1, and no more than that", step, oldest)
	}
	e.saving.Lock()
	defer e.saving.Unlock()
	if i := slices.IndexFunc(e.orders, func(o order) bool { return o.step == step }); i >= 0 {
		return e.orders[i].number, e.Err()
	}
	if err := ctx.Err(); err != nil { // it has waited for another save
		return 0, context.Cause(ctx)
	}
	e.orders = slices.DeleteFunc(e.orders, func(o order) bool { return o.step < oldest })
	s, err := e.saveHeld(ctx, e.saved.deltaIsLess(), step)
	return s.Number, err
}

// ordered are the checkpoints that stay because SaveStep has made them.
func (e *Engine) ordered() (numbers []uint64) {
	for _, o := range e.orders {
		numbers = append(numbers, o.number)
	}
	return numbers
}

// findOrders finds what SaveStep made before this server was started again. What cannot be read is left out:
// whoever needs it would find out, and it must not keep the server from saving.
func (e *Engine) findOrders() error {
	all, err := snapshot.Numbers(e.checkpoints())
	for _, n := range all {
		if chain, err := snapshot.Chain(e.checkpoints(), e.identity().Owner(), n); err == nil {
			if st, err := stateOf(chain[len(chain)-1]); err == nil && st.Step > 0 {
				e.orders = append(e.orders, order{n, st.Step})
			}
		}
	}
	return err
}
