package engine

import (
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/server/wal"
)

// DefaultLogFloor is that of Config.LogFloor.
const DefaultLogFloor = 256 << 20

// logBound says when the log has grown so long since the newest checkpoint that another one is due: as long as the
// tables are, which is what the checkpoint costs at most, and at least Config.LogFloor. So at most one byte of
// checkpoints is written for each byte of log (the rule of Redis's append-only file at its usual 100 %), and what is
// replayed, like what the disk holds, is bounded by the tables' size and not by how long they are trained.
type logBound struct {
	since atomic.Int64  // bytes of the log that the newest checkpoint does not hold
	at    atomic.Int64  // of since at which full is told; it grows with the tables
	full  chan struct{} // holds one
}

func (b *logBound) init(floor int64) {
	b.full = make(chan struct{}, 1)
	b.at.Store(floor)
}

// add counts a record. It costs one atomic addition.
func (b *logBound) add(payload int) {
	if b.since.Add(int64(payload+wal.HeaderBytes)) >= b.at.Load() {
		select {
		case b.full <- struct{}{}:
		default:
		}
	}
}

// LogFull tells, perhaps too often, that LogDue should be asked. It is nil where there is no log.
func (e *Engine) LogFull() <-chan struct{} {
	if e.log == nil {
		return nil
	}
	return e.bound.full
}

// LogDue says whether the log is so long that a checkpoint is due: see Config.LogFloor.
func (e *Engine) LogDue() bool {
	if e.log == nil || e.bound.since.Load() < e.bound.at.Load() {
		return false
	}
	limit := e.logLimit()
	e.bound.at.Store(limit)
	return e.bound.since.Load() >= limit
}

// logLimit is how long the log may be beyond the newest checkpoint before the next one is due.
func (e *Engine) logLimit() int64 {
	e.gate.RLock() // Close takes the tables away
	defer e.gate.RUnlock()
	if e.Err() != nil {
		return e.cfg.LogFloor
	}
	size := int64(0)
	for _, t := range e.sparse {
		has := t.table.Stats()
		size += (has.Rows + has.StoredRows) * t.rowBytes
	}
	for _, d := range e.dense {
		size += d.bytes
	}
	return max(size, e.cfg.LogFloor)
}
