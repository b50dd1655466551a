package engine

import (
	"time"

	"github.com/ringo-ml/ringo/internal/server/snapshot"
)

// mostDeltas is how many deltas to a whole checkpoint Engine.Checkpoint makes at most.
const mostDeltas = 16

// saved is what checkpoints there are: the newest whole one and the deltas to it.
type saved struct {
	number uint64 // of the newest
	epochs []uint64
	at     time.Time // when it was complete
	record uint64    // where its replay begins

	whole   int64 // bytes of the whole one
	changed int64 // and of the deltas
	deltas  int
}

// add notes the newest checkpoint.
func (s *saved) add(c *snapshot.Snapshot, bytes int64, st *state) {
	s.number, s.epochs, s.at, s.record = c.Number, st.Epochs, c.At, st.Record
	if c.Base == 0 {
		s.whole, s.changed, s.deltas = bytes, 0, 0
		return
	}
	s.changed += bytes
	s.deltas++
}

// deltaIsLess says that another delta is worth less than what it spares.
func (s *saved) deltaIsLess() bool { return s.deltas < mostDeltas && s.changed < s.whole/2 }

// SavedAt is when the newest checkpoint was complete, by the host's clock, those of earlier processes
// among them; zero where there is none.
func (e *Engine) SavedAt() time.Time {
	e.saving.Lock()
	defer e.saving.Unlock()
	return e.saved.at
}
