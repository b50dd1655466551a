package engine

import (
	"math"

	"github.com/ringo-ml/ringo/internal/server/shard"
	"github.com/ringo-ml/ringo/internal/server/wal"
)

// Stats are a server's statistics; the parts are from different moments.
type Stats struct {
	Index    int           `json:"index"`
	Servers  int           `json:"servers"`
	Mode     Mode          `json:"mode"`
	Tables   []TableInfo   `json:"tables,omitempty"`
	Arrays   []ArrayInfo   `json:"arrays,omitempty"`
	Sessions []SessionInfo `json:"sessions"`
	Slowest  uint64        `json:"slowest"`          // step that all trainers have clocked
	Highest  uint64        `json:"highest"`          // step that any trainer has clocked
	Applied  uint64        `json:"applied"`          // bsp: last step with its sum in the tables
	Behind   []int         `json:"behind,omitempty"` // trainers below the highest step
	Rate     float64       `json:"rate"`             // learning rate, -1 if unset
	Saved    uint64        `json:"saved"`            // number of the newest checkpoint, 0 for none
	Log      *wal.Stats    `json:"log,omitempty"`
	LogPast  int64         `json:"log_bytes_past_checkpoint,omitempty"`
	LogMost  int64         `json:"log_bytes_limit,omitempty"` // LogPast that requires a checkpoint
	Fault    string        `json:"fault,omitempty"`
}

// TableInfo describes a sparse table.
type TableInfo struct {
	Name string `json:"name"`
	shard.Stats
}

// ArrayInfo describes an array.
type ArrayInfo struct {
	Name string `json:"name"`
	Lo   int    `json:"lo"` // start in the whole array
	Hi   int    `json:"hi"`
	Set  int    `json:"set"` // values with an initial value
}

// SessionInfo describes a session.
type SessionInfo struct {
	Last   uint64 `json:"last"` // last change
	Clock  uint64 `json:"clock"`
	Left   bool   `json:"left"`
	Pushes int64  `json:"pushes"` // since the engine was opened
	Keys   int64  `json:"keys"`
}

// Stats returns the server's statistics; after Close without tables.
func (e *Engine) Stats() Stats {
	s := Stats{Index: e.cfg.Index, Servers: e.cfg.Servers, Mode: e.cfg.Mode, Rate: math.Float64frombits(e.rate.Load()), Saved: e.newest.Load()}
	c := e.clocks
	c.mu.Lock()
	s.Slowest, s.Highest, s.Applied, s.Behind = c.slowest, c.highest, c.applied, c.waitedFor(c.highest+1)
	for i, l := range c.sessions {
		at := &e.sessions[i]
		s.Sessions = append(s.Sessions, SessionInfo{at.last.Load(), l.clock, l.left, at.pushes.Load(), at.keys.Load()})
	}
	c.mu.Unlock()
	if e.log != nil {
		s.LogPast, s.LogMost = e.bound.since.Load(), e.logLimit()
	}
	e.gate.RLock()
	defer e.gate.RUnlock()
	if err := e.Err(); err != nil {
		s.Fault = err.Error()
		return s
	}
	for _, t := range e.sparse {
		s.Tables = append(s.Tables, TableInfo{t.Name, t.table.Stats()})
	}
	for _, d := range e.dense {
		d.mu.RLock()
		s.Arrays = append(s.Arrays, ArrayInfo{d.Name, d.lo, d.hi, d.set})
		d.mu.RUnlock()
	}
	if e.log != nil {
		l := e.log.Stats()
		s.Log = &l
	}
	return s
}
