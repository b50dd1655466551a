// Package engine is one parameter server without its network: its part of all sparse
// tables and dense arrays of a job, moved by the trainers' pushes exactly once each,
// as consistent as the job wants it, and as durable.
//
// # Sessions
//
// A trainer has one session or more with each server, which outlives the connections that
// carry it. Each session numbers its changes 1, 2, 3 and so on; the server takes them in this order. invariant[every-push-once]: what it
// has already it leaves out, also after it was killed and started again, so that a client
// that does not know whether a change arrived sends it again. Changes of
// a session come one at a time, those of different sessions at once. After every connect
// [Engine.Join] tells the client where to go on.
//
// # Consistency
//
// Steps count from 1. All pushes of a step and a session come before the session's Clock
// for it; a trainer has clocked a step when all its sessions have.
//
//   - Async applies pushes as they come.
//   - SSP does so too. invariant[staleness-bound]: a pull of step t waits until the slowest
//     trainer has clocked step t-1-Staleness (Ho et al., "More effective distributed ML via a stale
//     synchronous parallel parameter server", NIPS 2013).
//   - BSP keeps the pushes of a step until all trainers have clocked it, adds them up in
//     the order of trainers, and applies the sum once, times 1/trainers.
//     invariant[bsp-is-allreduce]: that is what the naive algorithm of package collective
//     and distopt come to, to the last bit. A
//     pull of step t waits until step t-1 is applied.
//   - Geo adds what trainers have moved their own copies by: no rule, no wait.
//
// A trainer that leaves is not waited for any more. One that is lost ends the job with
// an error that names it, or counts as one that has left ([Config].Lost).
//
// # Durability
//
// With WAL every change is in a log before it is acknowledged, and a server that is
// killed comes back with all of them: the newest checkpoint, and of the log what that
// does not hold. Every part of a checkpoint knows, session by session, the last change that
// it holds, so that training goes on while it is written. With Checkpoint what has
// come since the newest one is lost, with None everything.
//
// # Cost
//
// A push is sorted and applied by its caller's goroutine, under the table's own locks;
// it allocates nothing. With WAL its bytes are copied once more, to the log's buffer.
// In bsp a push is copied and sorted into 64 pieces when it comes, by its caller, and
// the sum is made piece by piece: a probe of a small table that the first cache holds,
// a row read and a row added, as fast as memory gives them. The pushes of a step are
// held until the last trainer has clocked it, and those of later steps that other
// trainers have begun: as much memory as clients may have under way.
package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/wal"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Mode is how consistent what trainers see is.
type Mode string

// The modes.
const (
	BSP   Mode = "bsp"
	Async Mode = "async"
	SSP   Mode = "ssp"
	Geo   Mode = "geo"
)

// Durability is what survives the end of the process.
type Durability string

// The durabilities.
const (
	None       Durability = "none"
	Checkpoint Durability = "checkpoint"
	WAL        Durability = "wal"
)

// Settings that several faults name.
const (
	pathMode       setting.Path = "sync"
	pathDurability setting.Path = "ps.durability"
	pathDir        setting.Path = "ps.dir"
)

// Limits.
const (
	// MaxSessions is how many sessions a job has at most, all trainers' together.
	MaxSessions = 1024
	// DefaultWaitLimit is that of Config.WaitLimit.
	DefaultWaitLimit = 10 * time.Minute
	// DefaultLogBuffer is that of Config.LogBuffer.
	DefaultLogBuffer = 16 << 20
	// DefaultKeep is that of Config.Keep.
	DefaultKeep = 2
)

// Config says which server this is and how it serves. Mode, Durability and the
// number of trainers have no defaults.
type Config struct {
	// Job names the job. A directory that holds another job's is refused.
	Job string
	// Index is this server's number of Servers, from 0; Servers 0 means 1.
	Index, Servers int
	// Trainers is how many there are, and Sessions how many sessions each has: 0 means 1.
	// Session l of trainer t is session t*Sessions+l.
	Trainers, Sessions int
	Mode               Mode
	// Staleness is SSP's: how many steps a trainer may be ahead of the slowest. 0 or more.
	Staleness  int
	Durability Durability
	// Fsync makes the log survive a loss of power, at the price of a disk's
	// flush for each group of changes.
	Fsync bool
	// Dir is the server's own directory, made where there is none. It is needed
	// unless Durability is None.
	Dir string
	// From are the directories of all servers of the job, or of another number of
	// them, whose newest checkpoints a new job begins with. It is looked at only
	// where Dir holds nothing.
	From []string
	// FromNumbers are which checkpoints of From a new job begins with, instead of the newest.
	FromNumbers []uint64
	// Ordered says that checkpoints are made by Engine.SaveStep alone: a new job that begins with others'
	// makes none at once.
	Ordered bool
	// Keep is how many checkpoints stay, besides those of Engine.SaveStep, and those that all these are deltas
	// to. 0 means DefaultKeep.
	Keep int
	// MaxRows is the most rows that a table has on this server; 0 is the default of
	// package rows.
	MaxRows int
	// Lost is what happens to the others when a trainer is lost. Empty means FailJob.
	Lost FailurePolicy
	// WaitLimit is how long Await waits. 0 means DefaultWaitLimit.
	WaitLimit time.Duration
	// LogBuffer bounds a change in the log, in bytes; there are two buffers of it. 0
	// means DefaultLogBuffer.
	LogBuffer int
	// LogFloor is how many bytes the log has beyond the newest checkpoint before LogDue calls for the next one; where
	// the tables are larger, it is their size. 0 means DefaultLogFloor.
	LogFloor int64
	// Make makes the server's part of table i. nil makes one in memory, whose
	// checkpoints are always whole, hold pushes up while they are written, and
	// which never shrinks; internal/server/tiers has others.
	Make func(i int, c rows.Config) (Table, error)
}

// Table is a server's part of one sparse table. Its methods may be called at once,
// except that a session's pushes come one after the other.
type Table interface {
	// Pull writes the weights of keys' rows to dst; rows that are not there are
	// made. Keys may come more than once.
	Pull(keys []uint64, dst []float32) error
	// Peek is Pull that makes no rows, moves none and counts nothing: for a key
	// without a row it writes initial weights.
	Peek(keys []uint64, dst []float32) error
	// Push applies gradients, times scale; counts that the rule wants are behind each row's,
	// and not scaled. What the rows have of that session and
	// number already is left out. A key twice is rows.ErrDuplicate, and
	// nothing is applied. After another error the same push may be made again.
	Push(session int, seq uint64, keys []uint64, grads []float32, scale float32) error
	// Shrink ages rows by days and deletes those that are worth nothing.
	Shrink(ctx context.Context, days int) (deleted int64, err error)
	// Save writes the table to a directory that does not exist, while it is in
	// use: whole, or where since is the epoch of an earlier Save what has changed
	// from then on. Not all tables can do the latter: see Deltas. of is what the files state that they belong to.
	Save(ctx context.Context, dir, of string, since uint64) (epoch uint64, err error)
	// Deltas tells whether Save takes a since other than 0.
	Deltas() bool
	// Committed says that what Save wrote is safe.
	Committed(epoch uint64)
	// Load adds what Save wrote: first a whole table, then deltas. Where keep is
	// nil the marks are loaded too, and pushes of the log follow until Replayed;
	// else the rows that it wants are, of another server. Files that do not state of are an error.
	Load(ctx context.Context, dir, of string, keep func(key uint64) bool) (epoch uint64, err error)
	// Replayed ends the loading.
	Replayed() error
	// Stats says how large the table is.
	Stats() TableStats
	// Close gives everything back.
	Close() error
}

// TableStats says how large a table is on this server.
type TableStats struct {
	Rows        int64 `json:"rows"`         // in memory
	StoredRows  int64 `json:"stored_rows"`  // in the tier below
	Bytes       int64 `json:"bytes"`        // resident, of the rows in memory
	StoredBytes int64 `json:"stored_bytes"` // in the tier below
	// Pulled and Pushed are keys since the table was made, and Missed those of them that
	// were not in memory, of tables that have a tier below. A table without one counts
	// nothing.
	Pulled int64 `json:"pulled_keys"`
	Pushed int64 `json:"pushed_keys"`
	Missed int64 `json:"missed_keys"`
	// Found are those of the missed that the tier below had, Denied keys that got no row, Evicted rows that
	// left memory, Deleted those that days have taken.
	Found   int64 `json:"found_keys"`
	Denied  int64 `json:"denied_keys"`
	Evicted int64 `json:"evicted_rows"`
	Deleted int64 `json:"deleted_rows"`
	// Prefetched are rows that came from the tier below before a pull that waited for other trainers was
	// answered: they were not missed.
	Prefetched int64 `json:"prefetched_rows"`
}

// filled is the configuration with its defaults.
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

// Validate reports every setting that is missing or out of its range.
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
	set(c.Durability == None || c.Durability == Checkpoint || c.Durability == WAL, pathDurability, "%q: want none, checkpoint or wal", c.Durability)
	set(c.Dir != "" || c.Durability == None, pathDir, "is missing: %v %s keeps what survives in a folder", pathDurability, c.Durability)
	set(!c.Fsync || c.Durability == WAL, "ps.fsync", "has no effect with %v %s: it is for %[1]v wal alone", pathDurability, c.Durability)
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
	segment := min(wal.DefaultSegmentBytes, c.LogFloor/4) // whole segments are removed
	return wal.Config{Sync: c.Fsync, BufferBytes: c.LogBuffer, SegmentBytes: max(segment, 2*int64(c.LogBuffer))}
}

// rowsConfig is a table's.
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

// scale is what pushes are multiplied by as they come: geo's are subtracted by
// descent with a rate of 1.
func (c Config) scale() float32 {
	if c.Mode == Geo {
		return -1
	}
	return 1
}
