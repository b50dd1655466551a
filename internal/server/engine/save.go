package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ringo-ml/ringo/internal/server/snapshot"
)

func (e *Engine) identity() Identity {
	c := e.cfg
	return Identity{c.Job, e.hash, c.Index, c.Servers, c.Trainers, c.Sessions, c.Mode, c.Durability, e.folder}
}

// state is what a checkpoint's manifest says besides files.
type state struct {
	About                   // of Record: changes of records before it are in the checkpoint
	Sessions []sessionState `json:"session_states"` // when Record was the next one
	Rate     float64        `json:"rate"`           // that was set, -1 for none
	Epochs   []uint64       `json:"epochs"`
	Since    []uint64       `json:"since"` // by table: 0 where it is whole
	logged   int64          // bytes of the log since the checkpoint before
}

type sessionState struct {
	Last  uint64 `json:"last"`
	Clock uint64 `json:"clock"`
	Left  bool   `json:"left,omitempty"`
	Lost  bool   `json:"lost,omitempty"`
}

// Saved says what Save wrote.
type Saved struct {
	Number uint64        `json:"number"`
	Base   uint64        `json:"base"` // of a delta, else 0
	Dir    string        `json:"dir"`
	Bytes  int64         `json:"bytes"`
	Took   time.Duration `json:"took_ns"`
}

// ErrWhole is Table.Save's error where there cannot be a delta any more: the table has to be saved
// whole.
var ErrWhole = errors.New("it has to be saved whole")

func (e *Engine) checkpoints() string { return CheckpointDir(e.cfg.Dir) }

func tableFolder(i int) string { return fmt.Sprintf("table-%d", i) }
func denseFile(i int) string   { return fmt.Sprintf("dense-%d", i) }

// Save writes a checkpoint, whole or, with delta, what has changed since the one before;
// where there is none before, or no table knows what has changed, it is whole. Training goes
// on meanwhile. A checkpoint appears whole or not at all; older ones than Config.Keep says
// and what the log no longer needs are then removed. One that cannot be
// written is an error that leaves everything as it was.
func (e *Engine) Save(ctx context.Context, delta bool) (Saved, error) {
	return e.saveAs(ctx, func() bool { return delta })
}

// Checkpoint is Save that chooses: a delta, until deltas since the last whole checkpoint come to half of
// its bytes, or there are 16 of them: all have to be read when a server begins.
func (e *Engine) Checkpoint(ctx context.Context) (Saved, error) {
	return e.saveAs(ctx, e.saved.deltaIsLess)
}

func (e *Engine) saveAs(ctx context.Context, delta func() bool) (Saved, error) {
	e.saving.Lock()
	defer e.saving.Unlock()
	return e.saveHeld(ctx, delta(), 0)
}

// saveHeld saves; step is that of a checkpoint of the whole job, else 0. e.saving is held.
func (e *Engine) saveHeld(ctx context.Context, delta bool, step uint64) (Saved, error) {
	if e.cfg.Durability == None {
		return Saved{}, fmt.Errorf("tables: saving: durability is %q", None)
	}
	if err := e.Err(); err != nil {
		return Saved{}, err
	}
	begun := time.Now()
	s, err := e.save(ctx, delta, step)
	if errors.Is(err, ErrWhole) {
		s, err = e.save(ctx, false, step)
	}
	s.Took = time.Since(begun)
	if err != nil {
		return s, fmt.Errorf("tables: server %d of %d: saving: %w", e.cfg.Index, e.cfg.Servers, err)
	}
	return s, nil
}

func (e *Engine) save(ctx context.Context, delta bool, step uint64) (Saved, error) {
	base := uint64(0)
	if delta && e.deltas() {
		base = e.saved.number
	}
	draft, err := snapshot.Begin(e.checkpoints(), e.identity().Owner(), base)
	if err != nil {
		return Saved{}, err
	}
	st, err := e.write(ctx, draft, base != 0)
	if err == nil {
		err = e.settle()
	}
	if err != nil {
		draft.Abandon()
		return Saved{}, err
	}
	st.Step = step
	done, err := draft.Commit(st)
	if err != nil {
		return Saved{}, err
	}
	bytes, err := done.Bytes()
	keep := e.keepFrom(&st)
	e.saved.add(done, bytes, &st)
	e.bound.since.Add(-st.logged)
	e.newest.Store(done.Number)
	if step > 0 {
		e.orders = append(e.orders, order{done.Number, step})
	}
	for i, t := range e.sparse {
		t.table.Committed(st.Epochs[i])
	}
	out := Saved{Number: done.Number, Base: base, Dir: done.Dir, Bytes: bytes}
	if err != nil {
		return out, fmt.Errorf("checkpoint %d is there: %w", done.Number, err)
	}
	if err := snapshot.Prune(e.checkpoints(), e.cfg.Keep, e.ordered()...); err != nil {
		return out, fmt.Errorf("checkpoint %d is there, older ones could not be removed: %w", done.Number, err)
	}
	if e.log != nil {
		if err := e.log.Truncate(keep); err != nil {
			return out, fmt.Errorf("checkpoint %d is there: %w", done.Number, err)
		}
	}
	return out, nil
}

// keepFrom is the first record of the log that is of use after a checkpoint: that from which the one before
// would be replayed, in case the new one is damaged; when all have left, the new one's.
func (e *Engine) keepFrom(st *state) uint64 {
	select {
	case <-e.clocks.left:
	default:
		if e.cfg.Keep > 1 && e.saved.number > 0 {
			return min(e.saved.record, st.Record)
		}
	}
	return st.Record
}

// deltas tells whether any table knows what has changed.
func (e *Engine) deltas() bool {
	for _, t := range e.sparse {
		if t.table.Deltas() {
			return true
		}
	}
	return false
}

// write writes tables and arrays.
func (e *Engine) write(ctx context.Context, draft *snapshot.Draft, delta bool) (state, error) {
	st := e.cut()
	for i, t := range e.sparse {
		since := uint64(0)
		if delta && t.table.Deltas() {
			since = e.saved.epochs[i]
		}
		dir, err := draft.Folder(tableFolder(i))
		if err != nil {
			return st, err
		}
		epoch, err := t.table.Save(ctx, dir, st.of(tableFolder(i), draft.Number()), since)
		if err != nil {
			return st, fmt.Errorf("table %q: %w", t.Name, err)
		}
		has := t.table.Stats()
		st.Epochs, st.Since, st.Rows = append(st.Epochs, epoch), append(st.Since, since), append(st.Rows, has.Rows+has.StoredRows)
		if err := e.Err(); err != nil {
			return st, err
		}
	}
	for i, d := range e.dense {
		w, err := draft.Create(denseFile(i))
		if err != nil {
			return st, err
		}
		if err := d.save(w, st.of(denseFile(i), draft.Number())); err != nil {
			return st, fmt.Errorf("array %q: %w", d.Name, err)
		}
		if err := w.Close(); err != nil {
			return st, fmt.Errorf("array %q: %w", d.Name, err)
		}
		if err := e.Err(); err != nil {
			return st, err
		}
	}
	return st, nil
}

// cut is the state between two changes: those before are in the tables, or kept by
// bsp, whose records are then part of the replay.
func (e *Engine) cut() state {
	e.gate.Lock()
	defer e.gate.Unlock()
	st := state{About: About{Identity: e.identity(), Layout: e.schema, Rows: []int64{}}, Rate: math.Float64frombits(e.rate.Load())}
	if e.log != nil {
		st.Last, st.logged = e.log.Stats().Last, e.bound.since.Load()
		st.Record = st.Last + 1
		if first := e.steps.needs(); first != 0 {
			st.Record = first
		}
	}
	for i := range e.sessions {
		l := &e.sessions[i]
		st.Sessions = append(st.Sessions, sessionState{l.last.Load(), l.clock, l.left, l.lost != nil})
	}
	e.clocks.mu.Lock()
	defer e.clocks.mu.Unlock()
	st.Highest, st.Applied = e.clocks.highest, e.clocks.applied
	return st
}

// settle waits until all changes that tables may hold survive: a checkpoint that held one
// that the log loses would make it count as had already when it comes again.
func (e *Engine) settle() error {
	if e.log == nil {
		return nil
	}
	e.gate.Lock() // none is applied and not in the log
	var head [headBytes]byte
	t, err := e.append(&head, &change{kind: kindMark})
	e.gate.Unlock()
	if err != nil {
		return err
	}
	return e.Durable(t)
}

// Shrink lets days pass for the rows: they age, and those that are worth nothing are
// deleted. Unless Durability is None a checkpoint follows, a delta where there can be
// one: a server that ends before it is there comes back with rows that have not aged.
func (e *Engine) Shrink(ctx context.Context, days int) (deleted int64, err error) {
	if days < 1 {
		return 0, fmt.Errorf("tables: shrinking by %d days: want 1 or more", days)
	}
	e.saving.Lock()
	for _, t := range e.sparse {
		if err = e.Err(); err != nil {
			break
		}
		n, fault := t.table.Shrink(ctx, days)
		deleted += n
		if fault != nil {
			err = fmt.Errorf("tables: shrinking table %q: %w", t.Name, fault)
			break
		}
	}
	e.saving.Unlock()
	if err != nil || e.cfg.Durability == None {
		return deleted, err
	}
	_, err = e.saveAs(ctx, func() bool { return e.saved.deltas < mostDeltas })
	return deleted, err
}
