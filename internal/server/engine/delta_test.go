package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/shard"
)

// mapped is a Table that is a plain map: each row knows what it has of each session, so
// that checkpoints may hold rows of different moments, and deltas are easy.
type mapped struct {
	Table // nil: tests of this table call no other methods
	c     rows.Config
	mu    sync.Mutex
	mappedRows
	since map[uint64]uint64 // epoch of each row's last change
	epoch uint64
	done  uint64 // Committed
}

type mappedRows struct {
	Rows  map[uint64][]float32      `json:"rows"`
	Marks map[uint64]map[int]uint64 `json:"marks"`
}

func newMapped(_ int, c rows.Config) (Table, error) {
	return &mapped{c: c, mappedRows: mappedRows{map[uint64][]float32{}, map[uint64]map[int]uint64{}}, since: map[uint64]uint64{}, epoch: 1}, nil
}

func (m *mapped) Pull(keys []uint64, dst []float32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, key := range keys {
		clear(dst[i*m.c.Dim:][:m.c.Dim])
		copy(dst[i*m.c.Dim:][:m.c.Dim], m.Rows[key])
	}
	return nil
}

// Push takes keys one by one: a Save in between sees a part of it.
func (m *mapped) Push(session int, seq uint64, keys []uint64, grads []float32, scale float32) error {
	for i, key := range keys {
		m.mu.Lock()
		if m.Rows[key] == nil {
			m.Rows[key], m.Marks[key] = make([]float32, m.c.Dim), map[int]uint64{}
		}
		if m.Marks[key][session] < seq {
			m.c.Rule.UpdateRows(m.Rows[key], nil, m.c.Dim, []int32{0}, grads[i*m.c.Dim:][:m.c.Dim], scale)
			m.Marks[key][session], m.since[key] = seq, m.epoch
		}
		m.mu.Unlock()
	}
	return nil
}

func (m *mapped) Save(_ context.Context, dir, _ string, since uint64) (uint64, error) {
	if since > m.done {
		return 0, fmt.Errorf("a delta to what was not committed: %w", shard.ErrTooLate)
	}
	m.mu.Lock()
	m.epoch++
	epoch, out := m.epoch, mappedRows{map[uint64][]float32{}, map[uint64]map[int]uint64{}}
	keys := maps.Clone(m.since)
	m.mu.Unlock()
	for key, changed := range keys { // row by row, while others push
		m.mu.Lock()
		if changed >= since {
			out.Rows[key], out.Marks[key] = append([]float32{}, m.Rows[key]...), maps.Clone(m.Marks[key])
		}
		m.mu.Unlock()
	}
	b, err := json.Marshal(out)
	if err != nil {
		return 0, err
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		return 0, err
	}
	return epoch, os.WriteFile(filepath.Join(dir, "map"), b, 0o666)
}

func (m *mapped) Load(_ context.Context, dir, _ string, keep func(uint64) bool) (uint64, error) {
	b, err := os.ReadFile(filepath.Join(dir, "map"))
	if err != nil {
		return 0, err
	}
	var in mappedRows
	if err := json.Unmarshal(b, &in); err != nil {
		return 0, err
	}
	for key, row := range in.Rows {
		if keep == nil || keep(key) {
			m.Rows[key], m.Marks[key], m.since[key] = row, in.Marks[key], m.epoch
			if keep != nil {
				m.Marks[key] = map[int]uint64{}
			}
		}
	}
	m.done = m.epoch
	return m.epoch, nil
}

func (m *mapped) Shrink(context.Context, int) (deleted int64, err error) { return 1, nil }
func (m *mapped) Deltas() bool                                           { return true }
func (m *mapped) Committed(epoch uint64)                                 { m.done = epoch }
func (m *mapped) Replayed() error                                        { return nil }
func (m *mapped) Peek(keys []uint64, dst []float32) error                { return m.Pull(keys, dst) }
func (m *mapped) Stats() shard.Stats                                     { return shard.Stats{} }
func (m *mapped) CountsPulls() bool                                      { return false }
func (m *mapped) Close() error                                           { return nil }

// Chains of deltas, the first one to what Open wrote, written while trainers push to a table whose rows are saved at different
// moments, come back whole.
func TestDeltas(t *testing.T) {
	s := whole(3)
	c := Config{Trainers: 3, Mode: Async, Durability: WAL, Dir: t.TempDir(), Make: newMapped, Keep: 1}
	want := newSums(s)
	e := open(t, c, s)
	newClient(t, e, 0).begin(want.dense())
	rng := rand.New(rand.NewPCG(2, 2))
	for round := range 6 {
		var all sync.WaitGroup
		for n := range c.Trainers {
			all.Go(func() {
				tr := newTrainer(t, []*Engine{e}, n)
				tr.rng = rand.New(rand.NewPCG(uint64(round), uint64(n)))
				for range 5 {
					g := integers(s, tr.rng, 300)
					want.add(g, false)
					tr.push(s, g)
					tr.each(func(l *client) { l.clock(-1) })
				}
			})
		}
		for range 1 + rng.IntN(3) {
			saved, err := e.Save(context.Background(), round != 3)
			must(t, err)
			if full := round == 3; full != (saved.Base == 0) || !full && saved.Base != saved.Number-1 {
				t.Errorf("round %d: %+v", round, saved)
			}
		}
		all.Wait()
		if round%2 == 1 {
			must(t, e.Close())
			e = open(t, c, s)
		}
		want.compare(t, []*Engine{e})
	}
	if deleted, err := e.Shrink(context.Background(), 1); err != nil || deleted != 1 {
		t.Errorf("shrinking: %d %v", deleted, err)
	}
	if e.Stats().Saved == 0 {
		t.Error("shrinking wrote no checkpoint")
	}
	must(t, e.Close())
	dir := c.Dir
	c.Dir, c.From, c.Job = t.TempDir(), []string{dir}, "next"
	want.compare(t, []*Engine{open(t, c, s)})
}

// Checkpoint writes deltas until they are half as large as the whole, or many, also over restarts; a
// table that cannot make one is saved whole.
func TestCheckpointChooses(t *testing.T) {
	s := whole(3)
	c := Config{Trainers: 1, Mode: Async, Durability: WAL, Dir: t.TempDir(), Make: newMapped}
	before := time.Now().Add(-time.Minute)
	e := open(t, c, s)
	want := newSums(s)
	newClient(t, e, 0).begin(want.dense())
	push := func(n int) {
		tr := newTrainer(t, []*Engine{e}, 0)
		g := integers(s, tr.rng, 1)
		g[0].keys = distinct(tr.rng, n, 4000)
		g[0].values = make([]float32, n*3)
		tr.push(s, g)
		want.add(g, false)
		tr.each(func(l *client) { l.clock(-1) })
	}
	checkpoint := func(delta bool) {
		t.Helper()
		saved, err := e.Checkpoint(context.Background())
		if err != nil || (saved.Base != 0) != delta || saved.Bytes < 100 {
			t.Fatalf("%+v %v, want a delta: %v", saved, err, delta)
		}
	}
	push(3000)
	checkpoint(true) // to the empty one that Open wrote
	checkpoint(false)
	for range mostDeltas {
		push(3)
		checkpoint(true)
	}
	must(t, e.Close())
	e = open(t, c, s)
	checkpoint(false)
	for range 3 {
		push(600)
		checkpoint(true)
	}
	checkpoint(false)
	if at := e.SavedAt(); at.Before(before) || at.After(time.Now().Add(time.Minute)) {
		t.Errorf("saved at %v", at)
	}
	e.sparse[0].table.(*mapped).done = 0 // as if it had been too long ago
	checkpoint(false)
	want.compare(t, []*Engine{e})
}

// hooked does something at the end of each Save.
type hooked struct {
	*mapped
	then func()
}

func (h *hooked) Save(ctx context.Context, dir, of string, since uint64) (uint64, error) {
	epoch, err := h.mapped.Save(ctx, dir, of, since)
	h.then()
	return epoch, err
}

// A checkpoint appears only when all that its tables may hold is in the log for good: what
// they hold beyond it would be left out when it comes again.
func TestCheckpointIsNotAheadOfTheLog(t *testing.T) {
	var e *Engine
	var last Ticket
	then := func() {}
	c := Config{Trainers: 1, Mode: Async, Durability: WAL, Dir: t.TempDir(), Make: func(i int, c rows.Config) (Table, error) {
		m, err := newMapped(i, c)
		return &hooked{m.(*mapped), func() { then() }}, err
	}}
	e = open(t, c, sparseOnly())
	then = func() {
		var err error
		last, err = e.PushRows(0, e.Last(0)+1, 0, 1, []uint64{1}, []float32{1, 1})
		must(t, err)
	}
	_, err := e.Save(context.Background(), false)
	must(t, err)
	if safe := e.Stats().Log.Safe; safe < last.Number || last.Number == 0 {
		t.Errorf("the log is safe up to record %d, the checkpoint may hold %d", safe, last.Number)
	}
}
