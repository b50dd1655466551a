package engine

import (
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/server/wal"
)

// DefaultLogFloor is the default of Config.LogFloor.
const DefaultLogFloor = 256 << 20

// logBound decides when the log after the newest checkpoint is so long that the next checkpoint is
// due: when it is as long as the tables, and at least Config.LogFloor. Each byte of log therefore
// causes at most one byte of checkpoints (the rule of Redis's append-only file at 100 %). The
// replay of a restart and the disk space depend on the size of the tables, not on time.
type logBound struct {
	since atomic.Int64  // bytes of log since the newest checkpoint
	at    atomic.Int64  // value of since that triggers full; grows with the tables
	full  chan struct{} // capacity 1
}

func (b *logBound) init(floor int64) {
	b.full = make(chan struct{}, 1)
	b.at.Store(floor)
}

// add counts a record. Cost: one atomic addition.
func (b *logBound) add(payload int) {
	if b.since.Add(int64(payload+wal.HeaderBytes)) >= b.at.Load() {
		select {
		case b.full <- struct{}{}:
		default:
		}
	}
}

// LogFull returns a channel with a signal when LogDue may have become true; nil without a log.
func (e *Engine) LogFull() <-chan struct{} {
	if e.log == nil {
		return nil
	}
	return e.bound.full
}

// LogDue reports whether the log's length requires a checkpoint: see Config.LogFloor.
func (e *Engine) LogDue() bool {
	if e.log == nil || e.bound.since.Load() < e.bound.at.Load() {
		return false
	}
	limit := e.logLimit()
	e.bound.at.Store(limit)
	return e.bound.since.Load() >= limit
}

// logLimit returns the log bytes after the newest checkpoint that make the next one due.
func (e *Engine) logLimit() int64 {
	e.gate.RLock() // excludes Close, which frees the tables
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
