package shard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/store"
)

// Table is one server's part of a sparse table. All methods except Close and Replayed are safe for
// concurrent use; Load precedes all others.
type Table struct {
	cfg   Config
	rows  *rows.Table
	store store.Store   // nil: rows only in memory
	room  *memoryBudget // nil without a store
	chunk int           // rows loaded at a time

	filter  *filter // nil if keys are not counted
	counted counted // guards changes of the filter; see counted.go
	replay  atomic.Pointer[replay]

	// slow, upkeep and gate are in locking order.
	slow   sync.Mutex   // held by each of Save, Shrink, Load
	upkeep sync.Mutex   // held for one step of eviction or shrinking; guards the fields below
	gate   sync.RWMutex // see the package comment

	hand   hand     // eviction state
	saving progress // Save's walk over memory
	days   dayClock // day changes need the gate too
	loaded uint64   // epoch of the last Load, guarded by slow

	clock   atomic.Uint64 // epochs, of which rows have the lower 16 bits; written under upkeep
	deleted tombstones

	jobs    chan *part
	readers sync.WaitGroup
	evictor sync.WaitGroup
	ctx     context.Context // done after Close
	quit    context.CancelFunc
	closed  atomic.Bool

	counts  counts
	batches bytesview.FreeList[loadBatch]
}

// New returns an empty table. Close ends its goroutines and frees its memory.
func New(cfg Config) (*Table, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Policy == nil {
		cfg.Policy = byUse
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
		t.room = newRoom(r.MaxRows, memoryWait)
		t.chunk = max(1, r.MaxRows/8)
		t.jobs = make(chan *part)
		for range readers {
			t.readers.Go(t.reader)
		}
		t.evictor.Go(t.evicts)
	}
	return t, nil
}

// Close ends the table's goroutines and frees its memory. It must not run concurrently with other
// methods; later calls return rows.ErrClosed.
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

// Dim returns the weights of a row.
func (t *Table) Dim() int { return t.rows.Dim() }

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

var errNoStore = errors.New("there is no store")

// view points r at a row's values, laid out as for rows.Table.Import.
func (t *Table) view(r *rows.Row, key uint64, values []float32) {
	r.Key, r.Weights = key, values[:t.rows.Dim()]
	values = values[t.rows.Dim():]
	r.State = r.State[:0]
	for _, p := range t.rows.Parts() {
		r.State = append(r.State, values[:p.Width])
		values = values[p.Width:]
	}
}
