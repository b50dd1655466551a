package engine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/snapshot"
	"github.com/ringo-ml/ringo/internal/server/wal"
	"github.com/ringo-ml/ringo/ps/schema"
)

// jobFile holds a directory's Identity as JSON.
const jobFile = "JOB"

// recover restores the engine from its directory: the newest checkpoint, then the log. A new
// directory starts with the checkpoints of Config.From.
func (e *Engine) recover(ctx context.Context) error {
	if e.cfg.Durability == None {
		return errors.Join(e.loadFrom(ctx), e.replayed())
	}
	if err := os.MkdirAll(e.cfg.Dir, 0o777); err != nil {
		return err
	}
	var err error
	if e.lock, err = dirlock.Take(e.cfg.Dir); err != nil {
		return err
	}
	if err := e.claim(); err != nil {
		return err
	}
	if e.cfg.Durability.Logged() {
		if e.log, err = wal.Open(LogDir(e.cfg.Dir), e.logConfig()); err != nil {
			return err
		}
	}
	var chain []*snapshot.Snapshot
	if !none(e.checkpoints()) {
		if chain, err = snapshot.Chain(e.checkpoints(), e.identity().Owner(), 0); err != nil {
			return e.olderThan(err)
		}
	}
	st := state{About: About{Record: 1}}
	if len(chain) > 0 {
		if st, err = e.load(ctx, chain); err != nil {
			return err
		}
	} else if e.log == nil || e.log.Stats().Last == 0 {
		if err := e.loadFrom(ctx); err != nil {
			return err
		}
	}
	if e.log != nil {
		if err := e.replay(st.Record); err != nil {
			return err
		}
	}
	if err := e.replayed(); err != nil {
		return err
	}
	if len(chain) == 0 && (len(e.cfg.From) > 0 && !e.cfg.Ordered || e.log != nil) {
		// The log continues this checkpoint, because a log alone does not describe the tables. A
		// replay ignores the admission of tables with rows on SSD, as Load specifies.
		if _, err = e.save(ctx, false, 0); err != nil {
			return fmt.Errorf("saving a first checkpoint: %w", err)
		}
	}
	return nil
}

func (e *Engine) logConfig() wal.Config {
	c := e.cfg.wal()
	c.Owner = e.identity().logOwner()
	return c
}

// replayed ends the loading of all tables.
func (e *Engine) replayed() error {
	for _, t := range e.sparse {
		if err := t.table.Replayed(); err != nil {
			return err
		}
	}
	return nil
}

func none(dir string) bool {
	all, err := snapshot.Numbers(dir)
	return err == nil && len(all) == 0
}

// claim takes the directory for this server, or returns an error if the owner is another server.
func (e *Engine) claim() error {
	path := IdentityPath(e.cfg.Dir)
	has, err := IdentityOf(e.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		e.folder = rand.Text()[:16]
		return e.writeJob(path)
	}
	if err != nil {
		return err
	}
	e.folder = has.Folder
	return e.mine(path, has)
}

// CheckSiblings returns an error if dir is new, and a folder next to it belongs to another job:
// folders of two jobs together cannot be read.
func CheckSiblings(dir, job string) error {
	parent := filepath.Dir(dir)
	all, err := os.ReadDir(parent)
	if _, own := IdentityOf(dir); own == nil || err != nil {
		return nil // the folder, or its creation, has the error
	}
	for _, f := range all {
		dir := filepath.Join(parent, f.Name())
		if has, err := IdentityOf(dir); err == nil && has.Job != job && f.Name() == "server-"+strconv.Itoa(has.Index) {
			return fmt.Errorf("%s: the folder is of another job, %s, not %s: choose another parent folder; a new job can start from this one (ps.init-from)", IdentityPath(dir), has.Job, job)
		}
	}
	return nil
}

// mine returns an error if a folder belongs to another server.
func (e *Engine) mine(path string, has Identity) error {
	want := e.identity()
	var faults []string
	differ := func(what string, has, want any) {
		if has != want {
			faults = append(faults, fmt.Sprintf("%s %v, not %v", what, has, want))
		}
	}
	differ("job", has.Job, want.Job)
	differ("server", fmt.Sprintf("%d of %d", has.Index, has.Servers), fmt.Sprintf("%d of %d", want.Index, want.Servers))
	differ("trainers", has.Trainers, want.Trainers)
	differ("sessions of each", has.Sessions, want.Sessions)
	differ("mode", has.Mode, want.Mode)
	differ("durability", has.Durability, want.Durability)
	differ("the tables of schema", has.Schema, want.Schema)
	differ("folder", has.Folder, want.Folder)
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%s: the folder is of another server, %s: choose another folder; a new job can start from this one (ps.init-from)", path, strings.Join(faults, ", "))
}

func (e *Engine) writeJob(path string) error {
	b, err := json.Marshal(e.identity())
	if err != nil {
		return err
	}
	return dirlock.WriteFile(path, func(w io.Writer) error {
		_, err := w.Write(append(b, '\n'))
		return err
	})
}

func stateOf(s *snapshot.Snapshot) (st state, err error) {
	if err := json.Unmarshal(s.Meta, &st); err != nil {
		return st, fmt.Errorf("%s: its manifest: %w", s.Dir, err)
	}
	return st, nil
}

func (e *Engine) load(ctx context.Context, chain []*snapshot.Snapshot) (st state, err error) {
	newest := chain[len(chain)-1]
	if st, err = stateOf(newest); err != nil {
		return st, err
	}
	if err := e.mine(newest.Dir, st.Identity); err != nil {
		return st, err
	}
	if len(st.Sessions) != len(e.sessions) {
		return st, fmt.Errorf("%s: its manifest has %d sessions of %d", newest.Dir, len(st.Sessions), len(e.sessions))
	}
	if st.Epochs, err = e.loadParts(ctx, chain, nil); err != nil {
		return st, e.olderThan(err)
	}
	for _, s := range chain {
		bytes, err := s.Bytes()
		if err != nil {
			return st, err
		}
		e.saved.add(s, bytes, &st)
	}
	e.newest.Store(newest.Number)
	if err := e.findOrders(); err != nil {
		return st, err
	}
	for i, s := range st.Sessions {
		l := &e.sessions[i]
		l.last.Store(s.Last)
		l.clock, l.left = s.Clock, s.Left
		if s.Lost {
			l.lost = e.lostBefore(i)
		}
		e.clocks.sessions[i] = sessionClock{s.Clock, s.Left}
	}
	e.clocks.highest, e.clocks.applied, e.steps.completeTo = st.Highest, st.Applied, st.Applied
	e.clocks.measure()
	e.setRate(st.Rate)
	return st, nil
}

// olderThan adds to err, the error of the newest checkpoint, how to use the checkpoint before it.
// The engine never uses an older checkpoint without a user's action.
func (e *Engine) olderThan(err error) error {
	all, fault := snapshot.Numbers(e.checkpoints())
	if fault != nil || len(all) < 2 {
		return err
	}
	rest := "what came after it is lost then"
	if e.log != nil {
		rest = "the log has what came after it"
	}
	return fmt.Errorf("%w; to begin with the one before, number %d, move the folder of number %d away: %s", err, all[len(all)-2], all[len(all)-1], rest)
}

func (e *Engine) lostBefore(session int) error {
	return &LostError{session / e.cfg.Sessions, errors.New("before this server was started again")}
}

// loadParts loads a chain of checkpoints; keep, unless nil, selects this server's keys of a table.
func (e *Engine) loadParts(ctx context.Context, chain []*snapshot.Snapshot, keep func(uint64) bool) (epochs []uint64, err error) {
	states := make([]state, len(chain))
	for i, s := range chain {
		if states[i], err = stateOf(s); err != nil {
			return nil, err
		}
		if id := states[0].Identity; states[i].Identity != id {
			return nil, fmt.Errorf("%s is of job %s (folder %s), server %d of %d, and %s, which it is a delta to, of job %s (folder %s), server %d of %d: bring back what was there",
				s.Dir, states[i].Job, states[i].Folder, states[i].Index, states[i].Servers, chain[0].Dir, id.Job, id.Folder, id.Index, id.Servers)
		}
		if err = fitting(states[i].Layout, e.schema); err == nil && len(states[i].Since) != len(e.sparse) {
			err = fmt.Errorf("its manifest has %d tables of %d", len(states[i].Since), len(e.sparse))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Dir, err)
		}
	}
	for i, t := range e.sparse {
		first := len(chain) - 1
		for first > 0 && states[first].Since[i] != 0 {
			first--
		}
		var epoch uint64
		for _, s := range chain[first:] {
			dir, err := s.Folder(tableFolder(i))
			if err == nil {
				epoch, err = t.table.Load(ctx, dir, states[0].of(tableFolder(i), s.Number), keep)
			}
			if err != nil {
				return nil, fmt.Errorf("loading table %q: %w", t.Name, err)
			}
		}
		epochs = append(epochs, epoch)
	}
	for i, d := range e.dense {
		if err := loadDense(ctx, d, chain[len(chain)-1], states[0].Identity, denseFile(i), keep == nil); err != nil {
			return nil, fmt.Errorf("loading array %q: %w", d.Name, err)
		}
	}
	return epochs, nil
}

// loadDense reads an array's file to its end, where the checksum is.
func loadDense(ctx context.Context, d *dense, s *snapshot.Snapshot, id Identity, file string, own bool) error {
	r, err := s.Open(file)
	if err != nil {
		return err
	}
	err = d.load(ctx, r, id.of(file, s.Number), own)
	if err == nil {
		err = atEnd(r)
	}
	if err = errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(s.Dir, file), err)
	}
	return nil
}

// loadFrom loads the checkpoints of all servers of a job. With an equal number of servers, only the
// checkpoint of the same index is needed. Sessions, clocks and rates restart.
func (e *Engine) loadFrom(ctx context.Context) error {
	mine := func(key uint64) bool { return schema.Owner(key, e.cfg.Servers) == e.cfg.Index }
	seen := map[int]string{}
	var job Identity
	for i, dir := range e.cfg.From {
		number := uint64(0)
		if len(e.cfg.FromNumbers) > 0 {
			number = e.cfg.FromNumbers[i]
		}
		id, err := IdentityOf(dir)
		if err != nil {
			return fmt.Errorf("loading from %s: %w", dir, err)
		}
		chain, err := snapshot.Chain(CheckpointDir(dir), id.Owner(), number)
		if err != nil {
			return fmt.Errorf("loading from %s: %w", dir, err)
		}
		st, err := stateOf(chain[len(chain)-1])
		if err != nil {
			return err
		}
		if other := seen[st.Index]; other != "" || st.Servers != len(e.cfg.From) || len(seen) > 0 && st.Job != job.Job {
			return fmt.Errorf("loading from %s: it is server %d of %d of job %q: want the directories of all servers of one job, these are %v", dir, st.Index, st.Servers, st.Job, e.cfg.From)
		}
		seen[st.Index], job = dir, st.Identity
		if st.Servers == e.cfg.Servers && st.Index != e.cfg.Index {
			continue
		}
		if _, err := e.loadParts(ctx, chain, mine); err != nil {
			return fmt.Errorf("loading from %s: %w", dir, err)
		}
	}
	return nil
}

// replay applies the changes of the log from record number from on, unless the tables include them.
func (e *Engine) replay(from uint64) error {
	c := &e.replaying
	return e.log.Replay(from, func(number uint64, b []byte) error {
		e.bound.add(len(b))
		if err := c.decode(b); err != nil {
			return fmt.Errorf("record %d: %w", number, err)
		}
		if err := e.redo(number, c); err != nil {
			return fmt.Errorf("record %d: change %d of session %d: %w", number, c.seq, c.session, err)
		}
		return nil
	})
}

// redo applies a change of the log. If the checkpoint includes the change, it has an effect only on
// a pending step in bsp.
func (e *Engine) redo(number uint64, c *change) error {
	if c.kind == kindMark {
		return nil
	}
	if c.session >= len(e.sessions) {
		return fmt.Errorf("there are %d sessions", len(e.sessions))
	}
	if c.kind == kindPull {
		return e.recount(c)
	}
	l := &e.sessions[c.session]
	if c.kind == kindLost {
		l.lost = e.lostBefore(c.session)
		e.advanceClocks(l, c, number)
		return e.applySteps()
	}
	last := l.last.Load()
	had := c.seq <= last
	if !had && c.seq != last+1 {
		return &gapError{c.session, c.seq, last}
	}
	if err := e.redoOne(number, l, c, had); err != nil {
		return err
	}
	l.last.Store(max(last, c.seq))
	return nil
}

// recount repeats the counts of a pull.
func (e *Engine) recount(c *change) error {
	if c.table >= len(e.sparse) || len(c.values) > 0 {
		return fmt.Errorf("counts of table %d of %d, with %d values", c.table, len(e.sparse), len(c.values))
	}
	return e.sparse[c.table].table.Recount(rows.PullID{Session: c.session, Process: c.at, Oldest: c.step}, c.seq, c.keys)
}

func (e *Engine) redoOne(number uint64, l *session, c *change, had bool) error {
	switch {
	case c.kind == kindClock && had:
		if e.cfg.Mode == BSP && c.step > e.clocks.applied {
			e.steps.offer(c.step, number, c.session, math.Float64frombits(c.at))
		}
		return nil
	case c.kind == kindClock || c.kind == kindLeave:
		if had {
			return nil
		}
		e.advanceClocks(l, c, number)
		return e.applySteps()
	}
	if err := e.fits(c); err != nil {
		return err
	}
	if c.kind != kindSet {
		if e.cfg.Mode == BSP {
			return e.rebufferPush(number, c)
		}
		if had {
			return nil
		}
	}
	err := e.applyChange(c)
	if err == nil && c.completed {
		e.clocks.arraySet()
	}
	return err
}

func (e *Engine) rebufferPush(number uint64, c *change) error {
	if c.step <= e.clocks.applied {
		return nil
	}
	p, err := e.prepare(c)
	if err == nil {
		e.steps.add(c.step, number, p, c.kind == kindRows)
	}
	return err
}
