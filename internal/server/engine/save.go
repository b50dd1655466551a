package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ringo-ml/ringo/internal/server/shard"
	"github.com/ringo-ml/ringo/internal/server/snapshot"
)

func (e *Engine) identity() Identity {
	c := e.cfg
	if c.Durability.Logged() {
		c.Durability = WAL // a restart may switch between wal and wal-fsync
	}
	return Identity{c.Job, e.hash, c.Index, c.Servers, c.Trainers, c.Sessions, c.Mode, c.Durability, e.folder}
}

// state is a checkpoint's manifest without its files.
type state struct {
	About                   // changes of records before Record are in the checkpoint
	Sessions []sessionState `json:"session_states"` // states as of record Last
	Rate     float64        `json:"rate"`           // learning rate, -1 if unset
	Epochs   []uint64       `json:"epochs"`
	Since    []uint64       `json:"since"` // base epoch by table; 0 for a full save
	logged   int64          // bytes of log since the previous checkpoint
}

type sessionState struct {
	Last  uint64 `json:"last"`
	Clock uint64 `json:"clock"`
	Left  bool   `json:"left,omitempty"`
	Lost  bool   `json:"lost,omitempty"`
}

// Saved describes a written checkpoint.
type Saved struct {
	Number uint64        `json:"number"`
	Base   uint64        `json:"base"` // base of a delta, else 0
	Dir    string        `json:"dir"`
	Bytes  int64         `json:"bytes"`
	Took   time.Duration `json:"took_ns"`
}

func (e *Engine) checkpoints() string { return CheckpointDir(e.cfg.Dir) }

func tableFolder(i int) string { return fmt.Sprintf("table-%d", i) }
func denseFile(i int) string   { return fmt.Sprintf("dense-%d", i) }

// Save writes a full checkpoint or, with delta, the changes since the previous checkpoint. The
// first checkpoint is full, and so are all if no table supports deltas. Training continues. A
// checkpoint appears atomically; then checkpoints beyond Config.Keep and unneeded log segments are
// removed. A failed save has no effect.
func (e *Engine) Save(ctx context.Context, delta bool) (Saved, error) {
	return e.saveAs(ctx, func() bool { return delta })
}

// Checkpoint is Save with an automatic choice: a delta, until the deltas since the last full
// checkpoint reach half of its bytes or 16 in number, because a restart reads all of them.
func (e *Engine) Checkpoint(ctx context.Context) (Saved, error) {
	return e.saveAs(ctx, e.saved.deltaIsLess)
}

func (e *Engine) saveAs(ctx context.Context, delta func() bool) (Saved, error) {
	e.saving.Lock()
	defer e.saving.Unlock()
	return e.saveHeld(ctx, delta(), 0)
}

// saveHeld saves; step is the step of a checkpoint of the whole job, else 0. e.saving is held.
func (e *Engine) saveHeld(ctx context.Context, delta bool, step uint64) (Saved, error) {
	if e.cfg.Durability == None {
		return Saved{}, fmt.Errorf("tables: saving: durability is %q", None)
	}
	if err := e.Err(); err != nil {
		return Saved{}, err
	}
	begun := time.Now()
	s, err := e.save(ctx, delta, step)
	if errors.Is(err, shard.ErrTooLate) {
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

// keepFrom returns the first log record to keep after a checkpoint: the first that a replay of the
// checkpoint before it needs, in case the new one is damaged. After all sessions have left, it is
// the first that the new checkpoint needs.
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

func (e *Engine) deltas() bool {
	for _, t := range e.sparse {
		if t.table.Deltas() {
			return true
		}
	}
	return false
}

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

// cut returns the state between two changes: all earlier changes are in the tables or, buffered by
// bsp, in log records that a restart replays.
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

// settle waits until all changes in the tables are durable: if a checkpoint had a change that the
// log has lost, a restarted server would ignore the repeated change.
func (e *Engine) settle() error {
	if e.log == nil {
		return nil
	}
	e.gate.Lock() // no change is applied but not logged
	var head [headBytes]byte
	t, err := e.append(&head, &change{kind: kindMark})
	e.gate.Unlock()
	if err != nil {
		return err
	}
	return e.Durable(t)
}

// Shrink ages the rows by days and deletes expired rows. Unless Durability is None a checkpoint
// follows, a delta if possible: a crash before the checkpoint restores rows without aging.
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
