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
	"github.com/ringo-ml/ringo/internal/server/wal"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Ticket is what Durable waits for.
type Ticket = wal.LSN

// Engine is a server's part of a job's tables. All methods may be called at once.
//
// Its first fault (a log that cannot be written, a sum that cannot be applied, a lost
// trainer) stops it: all calls return it from then on. What was acknowledged is safe,
// as far as Config.Durability says, and is there when Open is called again.
type Engine struct {
	cfg    Config
	schema schema.Schema
	hash   string
	lock   *dirlock.Lock // of Dir; nil without one
	folder string        // what JOB says; see Identity.Folder

	sparse   []*sparse
	dense    []*dense
	sessions []session
	clocks   *clocks
	log      *wal.Log // nil unless Durability is WAL
	most     int      // bytes of a change that the log takes
	bound    logBound

	// gate is shared by all changes, from before they touch anything until they are
	// in the log. Who has it alone sees none in part.
	gate sync.RWMutex
	// control orders what moves clocks, in the log as in the clocks.
	control sync.Mutex
	rate    atomic.Uint64 // bits of the learning rate that was set; those of -1: the schema's

	// Of bsp.
	steps   steps
	merging sync.Mutex // who applies steps
	merger  merger
	total   []float32 // of an array

	saving sync.Mutex
	saved  saved         // the newest checkpoint; saving is held
	orders []order       // checkpoints of the whole job; saving is held
	newest atomic.Uint64 // its number

	replaying change
	fault     atomic.Pointer[error]
	failed    chan struct{}
	closing   sync.Mutex
	closed    bool
}

// sparse is a table with its rule, whose rate the engine sets while it has the gate
// alone or, in bsp, while nobody else applies pushes.
type sparse struct {
	schema.Sparse
	table Table
	rated optim.Rated
	rule  optim.CountedRule // nil: it wants no counts

	counter counter // nil: keys are not counted before they have a row
	width   int     // values of a row of a push: its gradient and the counts

	rowBytes int64 // of a row in a checkpoint, about: key, when it was touched, weights and state
}

// session is what is known of a session, in cache lines of its own.
type session struct {
	mu     sync.Mutex // whoever makes a change of it; what is below is written with the gate shared
	last   atomic.Uint64
	ticket Ticket // of the last change
	clock  uint64
	left   bool
	lost   error // why it counts as left
	head   [headBytes]byte
	pushes atomic.Int64
	keys   atomic.Int64
	_      [64]byte
}

// Open makes an engine: a new one, or the one that its directory holds, as it was.
// Errors: bad settings, all together; a directory of another job, schema or server, or
// that another process has; damage, with file and offset.
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
		newTable = newMemory
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
		pulls, _ := table.(counter)
		if pulls != nil && !pulls.CountsPulls() {
			pulls = nil
		}
		e.sparse = append(e.sparse, &sparse{Sparse: t, table: table, counter: pulls, rated: rated, rule: counted, width: t.Dim + optim.Counts(c.Rule), rowBytes: 12 + 4*int64(values)})
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

// fail makes err the engine's fault, unless there is one.
func (e *Engine) fail(err error) {
	if e.fault.CompareAndSwap(nil, &err) {
		e.clocks.fail(err)
		close(e.failed)
	}
}

// Failed is closed when the engine has stopped: Err says why.
func (e *Engine) Failed() <-chan struct{} { return e.failed }

// HasLeft reports whether a session has left, or was given up: it makes no more changes.
func (e *Engine) HasLeft(session int) bool {
	e.clocks.mu.Lock()
	defer e.clocks.mu.Unlock()
	return e.clocks.sessions[session].left
}

// Err is what stopped the engine, nil while it works.
func (e *Engine) Err() error {
	if err := e.fault.Load(); err != nil {
		return *err
	}
	return nil
}

// Close ends all waits with ErrClosed, waits for changes under way, writes what is in the
// log's buffer, and gives everything back. It saves no checkpoint. A second Close gives ErrClosed.
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

// LogEnd is where the log ended when the engine was opened, the zero value where there was none.
func (e *Engine) LogEnd() (end wal.End) {
	if e.log != nil {
		end = e.log.End()
	}
	return end
}

// Last is the number of the last change taken of a session, 0 for none. It panics where there is no
// such session.
func (e *Engine) Last(session int) uint64 { return e.sessions[session].last.Load() }

// Join is what a session's client asks at every connect before its first change: from is the
// number of the first change that it still has, all before were acknowledged, and clock
// the step that the session had clocked before it. It returns the last change that the
// server has; the client goes on with the one after.
//
// Where acknowledged changes are gone that is an error, except with Checkpoint: then the
// server goes on with from and counts steps up to clock as clocked; what its
// checkpoint did not hold is missing.
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
		return 0, fmt.Errorf("tables: session %d comes back too late, the others went on without it: %w", session, l.lost)
	}
	last = l.last.Load()
	if from <= last+1 {
		return last, nil
	}
	if e.cfg.Durability != Checkpoint {
		return 0, fmt.Errorf("tables: session %d goes on with change %d, this server has changes up to %d: what was acknowledged is gone (durability %s): begin the job anew from a checkpoint", session, from, last, e.cfg.Durability)
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

// Await waits until a trainer may pull for a step, as the mode demands, and until all
// arrays have their initial values. Where it need not wait it returns nil at once, even
// if ctx is done. A wait that ends with ctx or after Config.WaitLimit gives a
// *waitError, which names the trainers that are behind; but where ctx was done
// before there was a wait, its cause.
func (e *Engine) Await(ctx context.Context, trainer int, step uint64) error {
	return e.clocks.await(ctx, trainer, step)
}

// WaitsFor is a trainer for which Await of a step waits; -1: for none, or for whoever gives arrays
// their initial values.
func (e *Engine) WaitsFor(step uint64) int { return e.clocks.slowestTrainer(step) }

// PullRows writes the weights of keys' rows to dst, len(keys)*Dim values. Rows that are
// not there are made. Keys may come more than once. It does not wait for trainers: see Await. Where a
// table counts keys before they have a row, a pull with the id of an earlier one is not counted again,
// and PullRows returns when the counts survive what Config.Durability says.
func (e *Engine) PullRows(id rows.PullID, table int, keys []uint64, dst []float32) error {
	if table >= 0 && table < len(e.sparse) && e.sparse[table].counter != nil {
		return e.pullCounted(id, table, keys, dst)
	}
	return e.pullRows(table, keys, dst, Table.Pull)
}

// counter is a Table that counts keys before they have a row.
type counter interface {
	CountsPulls() bool
	// PullCounted is Pull that calls log with the keys that it counts, and Recount counts them again:
	// see shard.Table.
	PullCounted(id rows.PullID, keys []uint64, dst []float32, log func(part uint64, keys []uint64) error) error
	Recount(id rows.PullID, part uint64, keys []uint64) error
}

func (e *Engine) pullCounted(id rows.PullID, table int, keys []uint64, dst []float32) error {
	var last Ticket
	err := func() error {
		e.gate.RLock()
		defer e.gate.RUnlock()
		if err := e.Err(); err != nil {
			return err
		}
		return e.sparse[table].counter.PullCounted(id, keys, dst, func(part uint64, keys []uint64) (err error) {
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

// PeekRows is PullRows for evaluation: it makes no rows and counts nothing. Keys without
// a row have initial weights.
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

// Clocked is a step whose pushes of all trainers that have not left, and those of all steps before it, are in what is pulled from now on.
func (e *Engine) Clocked() uint64 {
	c := e.clocks
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mode == BSP {
		return c.applied
	}
	return c.slowest
}

// Prefetch brings rows of keys from a table's tier below memory into memory, as far as there is room at once, for PullRows that will
// follow when their step begins. It changes nothing that a pull or a checkpoint has, and ends early with ctx and at a fault, which
// the pull meets. Tables that have no such tier have no such method.
func (e *Engine) Prefetch(ctx context.Context, table int, keys []uint64) {
	if table < 0 || table >= len(e.sparse) {
		return
	}
	t, ok := e.sparse[table].table.(interface {
		Prefetch(ctx context.Context, keys []uint64) (brought int)
	})
	if !ok {
		return
	}
	for some := range slices.Chunk(keys, prefetchKeys) {
		e.gate.RLock() // not for all keys: who wants the gate alone keeps pulls waiting meanwhile
		if e.Err() == nil && ctx.Err() == nil {
			t.Prefetch(ctx, some)
		}
		e.gate.RUnlock()
	}
}

// prefetchKeys is how many keys are brought in at a time.
const prefetchKeys = 1024

// PullDense writes values of an array from lo of the whole array on to dst. All must be
// this server's.
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

// Each hands out the rows of a table, keys and Dim weights for each, some at a time and in no
// order, as they are at different moments, while others push. What do gets is valid during
// the call. Only tables that have such a method can.
func (e *Engine) Each(ctx context.Context, table int, do func(keys []uint64, weights []float32) error) error {
	if table < 0 || table >= len(e.sparse) {
		return fmt.Errorf("tables: table %d of %d", table, len(e.sparse))
	}
	t := e.sparse[table]
	all, ok := t.table.(interface {
		Each(ctx context.Context, do func(keys []uint64, weights []float32) error) error
	})
	if !ok {
		return fmt.Errorf("tables: table %q cannot hand out all of its rows: load its checkpoint into one that can", t.Name)
	}
	e.saving.Lock() // Close waits
	defer e.saving.Unlock()
	if err := e.Err(); err != nil {
		return err
	}
	return all.Each(ctx, func(keys []uint64, weights []float32) error {
		if err := e.Err(); err != nil {
			return err
		}
		return do(keys, weights)
	})
}

// Durable waits until the change with that ticket, and all that came before it, survive
// what Config.Durability says. Without a log it returns nil at once. Tickets of
// a session may be waited for by the last alone.
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
