package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/server/snapshot"
)

// order is a checkpoint made by SaveStep.
type order struct{ number, step uint64 }

// SaveStep writes this server's part of a checkpoint of the whole job after a step, as Checkpoint
// does, and returns its number. The trainers must have flushed their pushes, and push no more until
// all servers have saved. The number stays valid until SaveStep is called with a larger oldest.
// Repeating a saved step returns its number: trainers retry until an answer arrives.
func (e *Engine) SaveStep(ctx context.Context, step, oldest uint64) (number uint64, err error) {
	if step == 0 || oldest > step {
		return 0, fmt.Errorf("tables: a checkpoint of the job after step %d, the oldest to be kept after step %d: want at least 1, and no more than that", step, oldest)
	}
	e.saving.Lock()
	defer e.saving.Unlock()
	if i := slices.IndexFunc(e.orders, func(o order) bool { return o.step == step }); i >= 0 {
		return e.orders[i].number, e.Err()
	}
	if err := ctx.Err(); err != nil { // the wait for another save was too long
		return 0, context.Cause(ctx)
	}
	e.orders = slices.DeleteFunc(e.orders, func(o order) bool { return o.step < oldest })
	s, err := e.saveHeld(ctx, e.saved.deltaIsLess(), step)
	return s.Number, err
}

// ordered returns the checkpoints that SaveStep has made and Prune must keep.
func (e *Engine) ordered() (numbers []uint64) {
	for _, o := range e.orders {
		numbers = append(numbers, o.number)
	}
	return numbers
}

// findOrders lists the SaveStep checkpoints of earlier processes. Unreadable checkpoints are
// skipped: a load would report them, and saves must not fail.
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
