package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/shard"
	"github.com/ringo-ml/ringo/internal/server/wal"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Ticket is a change's position in the log, for Durable.
type Ticket = wal.LSN

// Engine is a server's part of a job's tables. All methods are safe for concurrent use.
//
// The first error (a failed write of the log, a failed update, a lost trainer) stops the Engine:
// all later calls return it. Acknowledged changes are as durable as Config.Durability specifies,
// and are restored by the next Open.
type Engine struct {
	cfg    Config
	schema schema.Schema
	hash   string
	lock   *dirlock.Lock // lock of Dir; nil without a Dir
	folder string        // Identity.Folder

	sparse   []*sparse
	dense    []*dense
	sessions []session
	clocks   *clocks
	log      *wal.Log // nil unless Durability is Logged
	most     int      // maximum bytes of a change in the log
	bound    logBound

	// gate is held shared by each change, from before its first effect until its record is in the
	// log. A caller that holds it exclusively therefore sees only whole changes.
	gate sync.RWMutex
	// control orders changes of the clocks, equally in the log and in clocks.
	control sync.Mutex
	rate    atomic.Uint64 // bits of the learning rate; bits of -1: the schema's rates

	steps   steps
	merging sync.Mutex // held to apply steps
	merger  merger
	total   []float32 // sum of an array

	saving sync.Mutex
	saved  saved         // newest checkpoint; guarded by saving
	orders []order       // checkpoints of the whole job; guarded by saving
	newest atomic.Uint64 // number of the newest checkpoint

	replaying change
	fault     atomic.Pointer[error]
	failed    chan struct{}
	closing   sync.Mutex
	closed    bool
}

// sparse is a table with its rule. The engine sets the rule's rate while it holds the gate
// exclusively or, in bsp, between updates.
type sparse struct {
	schema.Sparse
	table Table
	rated optim.Rated
	rule  optim.CountedRule // nil if the rule needs no counts

	width int // values per row of a push: gradient and counts

	rowBytes int64 // approximate bytes of a row in a checkpoint: key, usage, weights and state
}

// session is the state of a session, padded against false sharing.
type session struct {
	mu     sync.Mutex // held by a change; the next fields need the gate too
	last   atomic.Uint64
	ticket Ticket // Ticket of the last change
	clock  uint64
	left   bool
	lost   error // cause, if the session was lost
	head   [headBytes]byte
	pushes atomic.Int64
	keys   atomic.Int64
	_      [64]byte
}

// Open returns a new engine, or restores the one in its directory. Errors: invalid settings, all
// together; a directory of another job, schema or server, or locked by another process; damage,
// with file and offset.
func Open(cfg Config, s schema.Schema) (*Engine, error) {
	if err := errors.Join(cfg.Validate(), s.Validate()); err != nil {
		return nil, err
	}
	cfg = cfg.filled()
	e := &Engine{cfg: cfg, schema: s, hash: s.Hash(), failed: make(chan struct{}), clocks: newClocks(cfg), sessions: make([]session, cfg.Trainers*cfg.Sessions)}
	e.steps = steps{tables: len(s.Sparse), arrays: len(s.Dense), trainers: cfg.Trainers}
	e.merger.kernels = simd.Host()
	e.most = cfg.wal().MaxRecord()
	e.rate.Store(noRate)
	e.bound.init(cfg.LogFloor)
	err := e.makeTables()
	if err == nil {
		err = e.recover(context.Background())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tables: server %d of %d of job %q: %w", cfg.Index, cfg.Servers, cfg.Job, err), e.release())
	}
	unset := 0
	for _, d := range e.dense {
		unset += toInt(!d.complete())
	}
	e.clocks.setUnset(unset)
	return e, nil
}

var noRate = math.Float64bits(-1)

func (e *Engine) makeTables() error {
	newTable := e.cfg.Make
	if newTable == nil {
		newTable = inMemory
	}
	for i, t := range e.schema.Sparse {
		c, err := e.cfg.rowsConfig(t)
		if err != nil {
			return err
		}
		table, err := newTable(i, c)
		if err != nil {
			return fmt.Errorf("table %q: %w", t.Name, err)
		}
		rated, _ := c.Rule.(optim.Rated)
		counted, _ := c.Rule.(optim.CountedRule)
		values := t.Dim
		for _, part := range c.Rule.Parts(t.Dim) {
			values += part.Width
		}
		e.sparse = append(e.sparse, &sparse{Sparse: t, table: table, rated: rated, rule: counted, width: t.Dim + optim.Counts(c.Rule), rowBytes: 12 + 4*int64(values)})
	}
	for _, d := range e.schema.Dense {
		a, err := newDense(e.cfg, d)
		if err != nil {
			return fmt.Errorf("array %q: %w", d.Name, err)
		}
		e.dense = append(e.dense, a)
	}
	return nil
}

// inMemory is the default of Config.Make.
func inMemory(_ int, c rows.Config) (Table, error) {
	t, err := shard.New(shard.Config{Rows: c})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// fail stops the engine with err, unless it has stopped before.
func (e *Engine) fail(err error) {
	if e.fault.CompareAndSwap(nil, &err) {
		e.clocks.fail(err)
		close(e.failed)
	}
}

// Failed returns a channel that is closed when the engine stops: Err returns the cause.
func (e *Engine) Failed() <-chan struct{} { return e.failed }

// HasLeft reports whether a session has left or was lost, and makes no more changes.
func (e *Engine) HasLeft(session int) bool {
	e.clocks.mu.Lock()
	defer e.clocks.mu.Unlock()
	return e.clocks.sessions[session].left
}

// Err returns the error that stopped the engine, nil while it works.
func (e *Engine) Err() error {
	if err := e.fault.Load(); err != nil {
		return *err
	}
	return nil
}

// Close ends all waits with ErrClosed, waits for running changes, flushes the log's buffer, and
// frees all resources. It saves no checkpoint. A second Close returns ErrClosed.
func (e *Engine) Close() error {
	e.closing.Lock()
	defer e.closing.Unlock()
	if e.closed {
		return ErrClosed
	}
	e.closed = true
	e.fail(ErrClosed)
	e.saving.Lock()
	defer e.saving.Unlock()
	e.gate.Lock()
	defer e.gate.Unlock()
	return e.release()
}

func (e *Engine) release() error {
	var errs []error
	if e.log != nil {
		errs = append(errs, e.log.Close())
	}
	for _, t := range e.sparse {
		errs = append(errs, t.table.Close())
	}
	if e.lock != nil {
		errs = append(errs, e.lock.Release())
	}
	return errors.Join(errs...)
}

// LogEnd returns the end of the log when the engine was opened, the zero value without a log.
func (e *Engine) LogEnd() (end wal.End) {
	if e.log != nil {
		end = e.log.End()
	}
	return end
}

// Last returns the number of a session's last change, 0 for none. It panics for an invalid session.
func (e *Engine) Last(session int) uint64 { return e.sessions[session].last.Load() }

// Join agrees with a client, after each connect, where a session continues. from is the client's
// first unacknowledged change, and clock the session's clock before from. Join returns the server's
// last change; the client sends the changes after it.
func (e *Engine) Join(session int, from, clock uint64) (last uint64, err error) {
	if session < 0 || session >= len(e.sessions) || from == 0 {
		return 0, fmt.Errorf("tables: session %d joins with change %d: want sessions 0 to %d, and changes from 1", session, from, len(e.sessions)-1)
	}
	l := &e.sessions[session]
	l.mu.Lock()
	defer l.mu.Unlock()
	e.gate.RLock()
	defer e.gate.RUnlock()
	if err := e.Err(); err != nil {
		return 0, err
	}
	if l.lost != nil {
		return 0, fmt.Errorf("tables: session %d reconnects too late, the other trainers have continued without it: %w", session, l.lost)
	}
	last = l.last.Load()
	if from <= last+1 {
		return last, nil
	}
	if e.cfg.Durability != Checkpoint {
		return 0, fmt.Errorf("tables: session %d continues with change %d, but this server has changes up to %d: acknowledged changes are lost (durability %s): start the job again from a checkpoint", session, from, last, e.cfg.Durability)
	}
	l.last.Store(from - 1)
	if clock > l.clock {
		l.clock = clock
		e.control.Lock()
		e.clocks.advance(session, clock)
		if e.cfg.Mode == BSP {
			e.steps.decide(e.clocks)
		}
		e.control.Unlock()
	}
	return from - 1, e.applySteps()
}

// Await blocks until a trainer may pull for a step in this mode, and all arrays have initial
// values. If no wait is needed, it returns nil immediately, even if ctx is done. A wait that ends
// with ctx or after Config.WaitLimit returns a *waitError with the trainers waited for; if ctx was
// done before the wait, its cause.
func (e *Engine) Await(ctx context.Context, trainer int, step uint64) error {
	return e.clocks.await(ctx, trainer, step)
}

// WaitsFor returns a trainer that Await waits for before a step; -1 if it waits for none, or for
// initial values.
func (e *Engine) WaitsFor(step uint64) int { return e.clocks.slowestTrainer(step) }

// PullRows writes the weights of keys' rows to dst, len(keys)*Dim values, and creates missing rows.
// Keys may be duplicate. It does not wait for trainers: see Await. If a table counts keys before
// they have a row, a repeated pull with the same id is not counted again, and PullRows returns when
// the counts are durable (Config.Durability).
func (e *Engine) PullRows(id rows.PullID, table int, keys []uint64, dst []float32) error {
	if table >= 0 && table < len(e.sparse) && e.sparse[table].table.CountsPulls() {
		return e.pullCounted(id, table, keys, dst)
	}
	return e.pullRows(table, keys, dst, Table.Pull)
}

func (e *Engine) pullCounted(id rows.PullID, table int, keys []uint64, dst []float32) error {
	var last Ticket
	err := func() error {
		e.gate.RLock()
		defer e.gate.RUnlock()
		if err := e.Err(); err != nil {
			return err
		}
		return e.sparse[table].table.PullCounted(id, keys, dst, func(part uint64, keys []uint64) (err error) {
			c := change{kind: kindPull, session: id.Session, table: table, seq: part, step: id.Oldest, at: id.Process, keys: keys}
			if e.log != nil && c.size() > e.most {
				return fmt.Errorf("%d keys to count: the log takes %d bytes at once: ask for less, or raise its buffer", len(keys), e.most)
			}
			var head [headBytes]byte
			last, err = e.append(&head, &c)
			return err
		})
	}()
	if err != nil {
		return fmt.Errorf("tables: pull: %w", err)
	}
	return e.Durable(last)
}

// PeekRows is PullRows for evaluation: it creates and counts no rows. Keys without a row have
// initial weights.
func (e *Engine) PeekRows(table int, keys []uint64, dst []float32) error {
	return e.pullRows(table, keys, dst, Table.Peek)
}

func (e *Engine) pullRows(table int, keys []uint64, dst []float32, pull func(Table, []uint64, []float32) error) error {
	if table < 0 || table >= len(e.sparse) {
		return fmt.Errorf("tables: pull: table %d of %d", table, len(e.sparse))
	}
	e.gate.RLock()
	defer e.gate.RUnlock()
	if err := e.Err(); err != nil {
		return err
	}
	return pull(e.sparse[table].table, keys, dst)
}

// Clocked returns the last step up to which any later pull includes all pushes.
func (e *Engine) Clocked() uint64 {
	c := e.clocks
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mode == BSP {
		return c.applied
	}
	return c.slowest
}

// Prefetch loads rows of a table from SSD into free memory, for a later PullRows. It changes no
// result. It ends early with ctx or at an error, which PullRows will return.
func (e *Engine) Prefetch(ctx context.Context, table int, keys []uint64) {
	if table < 0 || table >= len(e.sparse) {
		return
	}
	for some := range slices.Chunk(keys, prefetchKeys) {
		e.gate.RLock() // released between parts
		if e.Err() == nil && ctx.Err() == nil {
			e.sparse[table].table.Prefetch(ctx, some)
		}
		e.gate.RUnlock()
	}
}

const prefetchKeys = 1024

// PullDense writes values of an array, from index lo of the whole array, to dst; all must belong to
// this server.
func (e *Engine) PullDense(array, lo int, dst []float32) error {
	if array < 0 || array >= len(e.dense) {
		return fmt.Errorf("tables: pull: array %d of %d", array, len(e.dense))
	}
	d := e.dense[array]
	err := d.check(lo, len(dst))
	if err == nil {
		e.gate.RLock()
		defer e.gate.RUnlock()
		if err := e.Err(); err != nil {
			return err
		}
		err = d.pull(lo, dst)
	}
	if err != nil {
		return fmt.Errorf("tables: pull: array %q: %w", d.Name, err)
	}
	return nil
}

// Each passes the rows of a table to do, in batches and in no order: keys, and Dim weights for
// each, valid during the call. Pushes may continue, so that batches are from different moments.
func (e *Engine) Each(ctx context.Context, table int, do func(keys []uint64, weights []float32) error) error {
	if table < 0 || table >= len(e.sparse) {
		return fmt.Errorf("tables: table %d of %d", table, len(e.sparse))
	}
	e.saving.Lock() // excludes Close
	defer e.saving.Unlock()
	if err := e.Err(); err != nil {
		return err
	}
	return e.sparse[table].table.Each(ctx, func(keys []uint64, weights []float32) error {
		if err := e.Err(); err != nil {
			return err
		}
		return do(keys, weights)
	})
}

// Durable blocks until the change of a Ticket, and all earlier ones, are durable
// (Config.Durability). Without a log it returns nil immediately. For several changes of a session,
// the last Ticket suffices.
func (e *Engine) Durable(t Ticket) error {
	if e.log == nil {
		return nil
	}
	err := e.log.Wait(t)
	if err != nil {
		e.fail(err)
	}
	return err
}
