package shard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/store"
)

// Table is one server's part of a sparse table. All methods but Close and Replayed
// may be called by any number of goroutines; Load comes before all others.
type Table struct {
	cfg   Config
	rows  *rows.Table
	store store.Store   // nil: memory only
	room  *memoryBudget // nil: without a store
	chunk int           // rows brought in at a time

	filter  *filter // nil: keys are not counted
	counted counted // guards how the filter changes; see counted.go
	replay  atomic.Pointer[replay]

	// Locks, in the order in which they are taken.
	slow   sync.Mutex   // one Save, Shrink or Load
	upkeep sync.Mutex   // one step of eviction or shrinking; guards what follows
	gate   sync.RWMutex // see the package

	hand   hand     // of eviction
	saving progress // of Save's walk over memory
	days   dayClock // its day is written under the gate too
	loaded uint64   // epoch of what was loaded last, guarded by slow

	clock   atomic.Uint64 // epochs, of which rows have the lower 16 bits; upkeep is held to write
	deleted tombstones

	jobs    chan *part
	readers sync.WaitGroup
	evictor sync.WaitGroup
	ctx     context.Context // ends with Close
	quit    context.CancelFunc
	closed  atomic.Bool

	counts   counts
	freeList struct {
		sync.Mutex
		list []*loadBatch
	}
}

// New makes an empty table. It has goroutines and memory until Close.
func New(cfg Config) (*Table, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Policy == nil {
		cfg.Policy = byUse
	}
	if cfg.Readers == 0 {
		cfg.Readers = defaultReaders
	}
	if cfg.Wait == 0 {
		cfg.Wait = defaultWait
	}
	t := &Table{cfg: cfg, store: cfg.Store, filter: newFilter(cfg.Admission)}
	t.ctx, t.quit = context.WithCancel(context.Background())
	r := cfg.rowsConfig()
	if t.store == nil && cfg.Admission.chooses() {
		r.Admit = func(key uint64, push bool) bool {
			return t.filter != nil && !push || t.admits(key, push) // PullCounted has decided
		}
	}
	var err error
	if t.rows, err = rows.New(r); err != nil {
		return nil, fmt.Errorf("shard: %w", err)
	}
	if t.store != nil {
		t.room = newRoom(r.MaxRows, cfg.Wait)
		t.chunk = max(1, r.MaxRows/8)
		t.jobs = make(chan *part)
		for range cfg.Readers {
			t.readers.Go(t.reader)
		}
		t.evictor.Go(t.evicts)
	}
	return t, nil
}

// Close ends the table's goroutines and gives its memory back. It must not be called
// while another method runs; those called afterwards return rows.ErrClosed.
func (t *Table) Close() error {
	if t.closed.Swap(true) {
		return nil
	}
	t.quit()
	t.evictor.Wait()
	if t.jobs != nil {
		close(t.jobs)
	}
	t.readers.Wait()
	return t.fault("closing", t.rows.Close())
}

// Dim is the number of weights of a row.
func (t *Table) Dim() int { return t.rows.Dim() }

// fault says which table and operation an error belongs to.
func (t *Table) fault(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("shard: table %q: %s: %w", t.cfg.Rows.Name, op, err)
}

// tick begins an epoch. upkeep is held.
func (t *Table) tick() {
	t.rows.SetEpoch(uint16(t.clock.Add(1)))
}

// errNoStore is the error of what needs one.
var errNoStore = errors.New("there is no store")

// view points r at a row's values, as Export lays them out.
func (t *Table) view(r *rows.Row, key uint64, values []float32) {
	r.Key, r.Weights = key, values[:t.rows.Dim()]
	values = values[t.rows.Dim():]
	r.State = r.State[:0]
	for _, p := range t.rows.Parts() {
		r.State = append(r.State, values[:p.Width])
		values = values[p.Width:]
	}
}
