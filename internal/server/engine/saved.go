package engine

import (
	"time"

	"github.com/ringo-ml/ringo/internal/server/snapshot"
)

// mostDeltas is the maximum number of deltas per full checkpoint in Engine.Checkpoint.
const mostDeltas = 16

// saved describes the newest full checkpoint and its deltas.
type saved struct {
	number uint64 // newest checkpoint
	epochs []uint64
	at     time.Time // completion time
	record uint64    // replay start

	whole   int64 // bytes of the full checkpoint
	changed int64 // bytes of the deltas
	deltas  int
}

func (s *saved) add(c *snapshot.Snapshot, bytes int64, st *state) {
	s.number, s.epochs, s.at, s.record = c.Number, st.Epochs, c.At, st.Record
	if c.Base == 0 {
		s.whole, s.changed, s.deltas = bytes, 0, 0
		return
	}
	s.changed += bytes
	s.deltas++
}

// deltaIsLess reports whether another delta is cheaper than a full checkpoint.
func (s *saved) deltaIsLess() bool { return s.deltas < mostDeltas && s.changed < s.whole/2 }

// SavedAt returns the completion time of the newest checkpoint, by the host's clock, including
// earlier processes; zero without one.
func (e *Engine) SavedAt() time.Time {
	e.saving.Lock()
	defer e.saving.Unlock()
	return e.saved.at
}
