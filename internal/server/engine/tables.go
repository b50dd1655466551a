// Package engine is a parameter server without its network: its part of all sparse tables and dense
// arrays of a job, updated exactly once by each push, with the job's consistency and durability.
//
// # Sessions
//
// A trainer has one or more sessions with each server; sessions outlive connections. Each session
// numbers its changes from 1; the server applies them in order. invariant[every-push-once]: a
// server always ignores an already applied change, even after a kill and restart, because a client
// without an acknowledgement sends the change again. Changes of a session are sequential, those of
// different sessions concurrent. After each connect [Engine.Join] returns the position to continue
// from.
//
// # Consistency
//
// Steps count from 1. All pushes of a step and a session precede the session's Clock for it; a
// trainer has clocked a step when all its sessions have.
//
//   - Async applies pushes as they arrive.
//   - SSP applies pushes as they arrive, too. invariant[staleness-bound]: a pull of step t always
//     waits until the slowest trainer has clocked step t-1-Staleness (Ho et al., "More effective
//     distributed ML via a stale synchronous parallel parameter server", NIPS 2013).
//   - BSP buffers the pushes of a step until all trainers have clocked it, adds them up in the
//     order of trainers, and applies the sum once, times 1/trainers. invariant[bsp-is-allreduce]:
//     the result always equals the naive algorithm of packages collective and distopt to the last
//     bit. A pull of step t waits until step t-1 is applied.
//   - Geo adds the changes that trainers made to their own copies. The server applies no optimizer,
//     and no pull waits.
//
// Trainers that have left are not waited for. A lost trainer ends the job with an error that names
// it, or counts as left ([Config].Lost).
//
// # Durability
//
// With WAL every change is logged before its acknowledgement, and a restarted server has all of
// them: the newest checkpoint, and the log after it. Training continues while a checkpoint is
// written, so that its parts differ in age; each part stores the number of the last change that it
// includes, for each session. With Checkpoint the changes since the newest checkpoint are lost,
// with None all changes.
//
// # Cost
//
// The caller's goroutine sorts and applies a push, under the table's locks and without allocation.
// With WAL the bytes are copied once more, to the log's buffer. In bsp the caller copies a push and
// partitions it into 64 pieces, and the sum is computed piece by piece. A row costs a look-up in a
// hash table of the size of the first-level cache, a read and an addition: the speed of memory is
// the limit. The server keeps pushes until the last trainer has clocked the step, together with
// pushes of later steps; the clients' limits of unacknowledged pushes limit this memory.
package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/shard"
	"github.com/ringo-ml/ringo/internal/server/wal"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Mode is the consistency between trainers.
type Mode string

// Consistency modes.
const (
	BSP   Mode = "bsp"
	Async Mode = "async"
	SSP   Mode = "ssp"
	Geo   Mode = "geo"
)

// Durability is the state that survives the process.
type Durability string

// Durability of acknowledged pushes.
const (
	None       Durability = "none"
	Checkpoint Durability = "checkpoint"
	WAL        Durability = "wal"
	WALFsync   Durability = "wal-fsync" // also after a loss of power, by a disk flush per group of changes
)

// Logged reports whether the server has a log.
func (d Durability) Logged() bool { return d == WAL || d == WALFsync }

// Settings that several errors name.
const (
	pathMode       setting.Path = "sync"
	pathDurability setting.Path = "ps.durability"
	pathDir        setting.Path = "ps.dir"
)

const (
	// MaxSessions is the maximum number of sessions of a job, over all trainers.
	MaxSessions = 1024
	// DefaultWaitLimit is the default of Config.WaitLimit.
	DefaultWaitLimit = 10 * time.Minute
	// DefaultLogBuffer is the default of Config.LogBuffer.
	DefaultLogBuffer = 16 << 20
	// DefaultKeep is the default of Config.Keep.
	DefaultKeep = 2
)

// Config identifies the server and configures it. Mode, Durability and Trainers have no defaults.
type Config struct {
	// Job names the job. A directory of another job is rejected.
	Job string
	// Index is this server's number, from 0 to Servers-1; Servers 0 means 1.
	Index, Servers int
	// Trainers is the number of trainers, and Sessions the number of sessions of each; 0 means 1.
	// Session l of trainer t is session t*Sessions+l.
	Trainers, Sessions int
	Mode               Mode
	// Staleness is SSP's maximum lead over the slowest trainer, in steps, at least 0.
	Staleness  int
	Durability Durability
	// Dir is the server's directory, created if missing, and required unless Durability is None.
	Dir string
	// From has the directories of all servers of a job, of any number, with the newest checkpoints
	// that a new job starts from. It is ignored unless Dir is empty.
	From []string
	// FromNumbers selects checkpoints of From instead of the newest ones.
	FromNumbers []uint64
	// Ordered restricts checkpoints to those of Engine.SaveStep. A new job with From then makes no
	// checkpoint at its start.
	Ordered bool
	// Keep is the number of checkpoints to keep, in addition to those of Engine.SaveStep and those
	// that deltas need. 0 means DefaultKeep.
	Keep int
	// MaxRows is the maximum number of a table's rows on this server; 0: package rows' default.
	MaxRows int
	// Lost is the policy for a lost trainer. Empty means FailJob.
	Lost FailurePolicy
	// WaitLimit is the maximum wait of Await. 0 means DefaultWaitLimit.
	WaitLimit time.Duration
	// LogBuffer is the maximum size of a change in the log, in bytes; the log has two such buffers.
	// 0 means DefaultLogBuffer.
	LogBuffer int
	// LogFloor is the minimum log after the newest checkpoint, in bytes, before LogDue asks for the
	// next one; the tables' size is the minimum if it is larger. 0 means DefaultLogFloor.
	LogFloor int64
	// Make creates the server's part of table i. nil creates a table in memory, without admission,
	// shrinking and deltas; internal/server/tiers has other tables.
	Make func(i int, c rows.Config) (Table, error)
}

// Table is a server's part of a sparse table: a shard.Table, which describes the methods. Tests
// have a naive twin.
type Table interface {
	Pull(keys []uint64, dst []float32) error
	Peek(keys []uint64, dst []float32) error
	Push(session int, seq uint64, keys []uint64, grads []float32, scale float32) error
	Prefetch(ctx context.Context, keys []uint64) (brought int)
	Each(ctx context.Context, do func(keys []uint64, weights []float32) error) error

	CountsPulls() bool
	PullCounted(by rows.PullID, keys []uint64, dst []float32, log func(part uint64, keys []uint64) error) error
	Recount(by rows.PullID, part uint64, keys []uint64) error

	Shrink(ctx context.Context, days int) (deleted int64, err error)
	Save(ctx context.Context, dir, of string, since uint64) (epoch uint64, err error)
	Deltas() bool
	Committed(epoch uint64)
	Load(ctx context.Context, dir, of string, keep func(key uint64) bool) (epoch uint64, err error)
	Replayed() error
	Stats() shard.Stats
	Close() error
}

func (c Config) filled() Config {
	defaults := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	defaults(&c.Servers, 1)
	defaults(&c.Sessions, 1)
	defaults(&c.Keep, DefaultKeep)
	defaults(&c.LogBuffer, DefaultLogBuffer)
	if c.LogFloor == 0 {
		c.LogFloor = DefaultLogFloor
	}
	if c.WaitLimit == 0 {
		c.WaitLimit = DefaultWaitLimit
	}
	return c
}

// Validate returns an error for each setting that is missing or out of its range.
func (c Config) Validate() error {
	c = c.filled()
	var errs []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("tables: "+format, args...))
		}
	}
	set := func(ok bool, p setting.Path, format string, args ...any) {
		if !ok {
			errs = append(errs, setting.Errorf(p, format, args...))
		}
	}
	want(c.Servers >= 1 && c.Index >= 0 && c.Index < c.Servers, "server %d of %d: want 0 to %d", c.Index, c.Servers, c.Servers-1)
	want(c.Trainers >= 1 && c.Sessions >= 1 && c.Trainers <= MaxSessions && c.Sessions <= MaxSessions && c.Trainers*c.Sessions <= MaxSessions,
		"%d trainers with %d sessions each: want at least 1, and at most %d sessions together", c.Trainers, c.Sessions, MaxSessions)
	set(c.Mode == BSP || c.Mode == Async || c.Mode == SSP || c.Mode == Geo, pathMode, "%q: want bsp, async, ssp or geo", c.Mode)
	set(c.Staleness >= 0, "ps.staleness", "%d: want 0 or more", c.Staleness)
	set(c.Staleness <= 0 || c.Mode == SSP, "ps.staleness", "%d has no effect with %v %s: it is for %[2]v ssp alone", c.Staleness, pathMode, c.Mode)
	set(c.Durability == None || c.Durability == Checkpoint || c.Durability.Logged(), pathDurability, "%q: want none, checkpoint, wal or wal-fsync", c.Durability)
	set(c.Dir != "" || c.Durability == None, pathDir, "is missing: %v %s stores the surviving state in a folder", pathDurability, c.Durability)
	set(c.Lost == "" || c.Lost == FailJob || c.Lost == ContinueJob, "ps.failure-policy", "%q: want fail or continue", c.Lost)
	want(len(c.FromNumbers) == 0 || len(c.FromNumbers) == len(c.From), "%d numbers of checkpoints for %d directories: want one for each, or none", len(c.FromNumbers), len(c.From))
	want(!c.Ordered || c.Durability == Checkpoint, "checkpoints to order only with durability %q: it is for checkpoint alone", c.Durability)
	want(c.Keep >= 1, "%d checkpoints to keep: want 1 or more", c.Keep)
	want(c.WaitLimit > 0, "a wait limit of %v: want more than 0", c.WaitLimit)
	want(c.LogFloor > 0, "a log of %d bytes beyond a checkpoint: want more than 0, or 0 for %d", c.LogFloor, DefaultLogFloor)
	want(c.MaxRows >= 0 && c.MaxRows <= math.MaxInt32, "at most %d rows: want 1 to %d, or 0", c.MaxRows, math.MaxInt32)
	if err := c.wal().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("tables: the log: %w", err))
	}
	return errors.Join(errs...)
}

func (c Config) wal() wal.Config {
	segment := min(wal.DefaultSegmentBytes, c.LogFloor/4) // only whole segments are removed
	return wal.Config{Sync: c.Durability == WALFsync, BufferBytes: c.LogBuffer, SegmentBytes: max(segment, 2*int64(c.LogBuffer))}
}

func (c Config) rowsConfig(t schema.Sparse) (rows.Config, error) {
	rule, err := t.Rule.Rows()
	if err != nil {
		return rows.Config{}, err
	}
	if c.Mode == Geo {
		if optim.Counts(rule) > 0 {
			return rows.Config{}, fmt.Errorf("table %q: rule %s counts on the servers, and in geo the state of rows is the trainers': use bsp, async or ssp", t.Name, rule.Name())
		}
		rule = &optim.SGDRows{LR: 1}
	}
	init, err := t.Init.Init()
	return rows.Config{Name: t.Name, Dim: t.Dim, Rule: rule, Init: init, Seed: t.Seed, MaxRows: c.MaxRows}, err
}

// scale returns the factor of pushes. For geo it is negative: deltas are added by gradient descent
// with rate 1, which subtracts.
func (c Config) scale() float32 {
	if c.Mode == Geo {
		return -1
	}
	return 1
}
