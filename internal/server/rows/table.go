// Package rows is one server's shard of a sparse table in memory: rows of weights by 64-bit key,
// created at the first access, and updated by the row rules of optim.
//
// # Memory
//
// A row has a number, dense from 0; numbers of deleted rows are reused. One array has the weights,
// one more each part of the rule's state, and an index of 5-slot cache lines finds a key's number.
// Arrays grow without copying, the index grows segment by segment by an eighth, and the garbage
// collector scans none of this memory. Per row:
//
//	weights                     4*dim bytes
//	state                       4*(sum of the widths of the rule's parts)
//	usage, if kept              4
//	index, 64 bytes for 5 slots that are taken to
//	  85 % just before a segment grows      15.1
//	  75 % just after it, chunks rounded    17.1
//
// Rows of width 16 with one float of state take at most 64 + 4 + 17.1 = 85.1 bytes while the table
// grows, with all segments at their emptiest simultaneously. Memory independent of the rows: 2 MiB
// at the end of each array, 2 KiB for each of at most 4096 segments with few keys (the values above
// hold from 550 keys per segment; 75 % becomes 68 %, 18.8 bytes, from 544 to 680), 40 bytes per
// segment, 4 bytes per 2 KiB of the index, and a copy of each segment during its rebuild. With 50
// million rows in 4096 segments this sums to 0.4 bytes per row.
//
// # Threads
//
// All methods except Close are safe for concurrent use. The keys of a batch are sorted by lock
// stripe, each stripe is locked once per batch, and its keys are processed in blocks with many
// overlapping cache misses. A Pull reads whole rows, no update is lost, and concurrent first
// touches of a key create one row. A batch as a whole is not atomic. PushOnce records, for each
// stripe and session, the number of the last applied push, so that no push is applied twice;
// WalkPiece passes these numbers with the rows.
package rows

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/internal/rowinit"
	"github.com/ringo-ml/ringo/optim"
)

// Config configures a table. The zero value is not valid: Name, Dim and Rule are required.
type Config struct {
	// Name is the table's name; initial weights depend on it.
	Name string
	// Dim is the number of weights in a row, at least 1. Multiples of 16 are fastest (cache lines).
	Dim int
	// Rule updates rows and defines their state. With an optim.CountedRule the counts of a pushed
	// row follow its gradient: see PushDim.
	Rule optim.RowRule
	// Init writes a row's initial weights. nil means zeros.
	Init rowinit.Init
	// Seed is the seed of Init's streams.
	Seed uint64
	// MaxRows is the maximum number of rows, at most 2^31-1; 0 means 2^28. It determines the
	// reserved address space, and the index has a segment per 16384 rows, at least 64 and at most
	// 4096, of at least 2 KiB each.
	MaxRows int
	// Usage records each row's usage, in 4 bytes.
	Usage bool
	// Admit reports whether a key without a row gets one; push distinguishes a Push from a Pull.
	// nil admits all. Many goroutines call Admit while they hold locks: it must be fast and must
	// not call the table. For a duplicate key of a batch it may be called more than once.
	Admit func(key uint64, push bool) bool

	// shift is the shift of the arrays' slabs, 0 for the default. Tests set it.
	shift uint
}

const defaultMaxRows = 1 << 28

// Validate returns an error for each setting that is missing or out of its range.
func (c *Config) Validate() error {
	bad := faults.In(fmt.Sprintf("rows: table %q: ", c.Name))
	bad.If(c.Name == "", "no name: initial weights depend on it")
	bad.If(c.Dim < 1 || c.Dim > 1<<20, "%d weights in a row: want 1 to %d", c.Dim, 1<<20)
	bad.If(c.MaxRows < 0 || c.MaxRows > math.MaxInt32, "at most %d rows: want 1 to %d, or 0 for %d", c.MaxRows, math.MaxInt32, defaultMaxRows)
	bad.If(c.Rule == nil, "no rule to update rows")
	if c.Rule != nil {
		if err := c.Rule.Validate(); err != nil {
			bad.Add(fmt.Errorf("rows: table %q: %w", c.Name, err))
		}
		seen := map[string]bool{}
		for _, p := range c.Rule.Parts(max(1, c.Dim)) {
			bad.If(p.Width < 1, "part %q of the state of %s has %d values in a row: want at least 1", p.Name, c.Rule.Name(), p.Width)
			bad.If(seen[p.Name], "two parts of the state of %s are named %q", c.Rule.Name(), p.Name)
			seen[p.Name] = true
		}
	}
	return bad.Err()
}

// PullID identifies a pull, to recognise a trainer's repetition after a broken connection.
type PullID struct {
	Session int
	Process uint64 // process that numbers the pulls; 0: no identity
	Number  uint64 // counts from 1
	Oldest  uint64 // oldest unanswered pull of the session at this pull
}

// Errors of batches, wrapped with the table and details.
var (
	// ErrFull reports that rows could not be created: MaxRows reached, or no memory left.
	ErrFull = errors.New("the table is full")
	// ErrDuplicate reports a duplicate key in a batch of gradients.
	ErrDuplicate = errors.New("a key is twice in the batch")
	// ErrClosed reports a closed table.
	ErrClosed = errors.New("the table is closed")
)

// stripeBits is the binary logarithm of the number of locks. More stripes reduce contention and
// have smaller groups of keys.
const (
	stripeBits = 6
	stripes    = 1 << stripeBits
)

// stripe is a lock in a pair of cache lines, because processors prefetch pairs.
type stripe struct {
	sync.Mutex
	rows, denied, dropped int // see Stats
	_                     [128 - 8 - 3*8]byte
}

// Table is the rows of a table in memory, by key.
type Table struct {
	cfg    Config
	stream uint64 // table's part of Init's streams
	parts  []optim.RowPart
	width  int // values of a row with its state

	counted optim.CountedRule // nil for a rule without counts
	grad    int               // values of a row of a push
	first   rowinit.Init      // initial weights; counted.Extend adds the rest of Config.Init's

	stripes [stripes]stripe
	index   *index
	weights *array[float32]
	state   []*array[float32]
	usage   *array[uint32] // nil without Config.Usage

	slab []slab // the rule's view of each slab

	numbers struct {
		sync.Mutex
		used int   // rows ever taken
		idle int   // rows in the free list
		free int32 // head of the free list, -1 for none; a row's first weight is the next one
	}

	sessions sessions
	epoch    atomic.Uint32
	turn     atomic.Uint32 // first stripe of the next batch
	closed   atomic.Bool

	spare bytesview.FreeList[batch]
}

// slab is a part of the memory of the rows' state, in the form that the rule needs.
type slab struct{ state [][]float32 }

// New returns an empty table, which holds address space and memory until Close.
func New(cfg Config) (*Table, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.MaxRows == 0 {
		cfg.MaxRows = defaultMaxRows
	}
	if cfg.Init == nil {
		cfg.Init = rowinit.Constant(0)
	}
	if cfg.shift == 0 {
		cfg.shift = defaultShift
	}
	t := &Table{cfg: cfg, stream: rowinit.Table(cfg.Seed, cfg.Name), parts: cfg.Rule.Parts(cfg.Dim), width: cfg.Dim, grad: cfg.Dim, first: cfg.Init}
	if c, ok := cfg.Rule.(optim.CountedRule); ok {
		t.counted, t.grad = c, cfg.Dim+c.Counts()
		t.first = func(dst []float32, stream uint64) {
			cfg.Init(dst, stream)
			c.Begin(dst)
		}
	}
	t.numbers.free = none
	for _, p := range t.parts {
		t.width += p.Width
	}
	if err := t.reserve(); err != nil {
		return nil, errors.Join(fmt.Errorf("rows: table %q: %w", cfg.Name, err), t.release())
	}
	return t, nil
}

// none is the row number of a missing row.
const none = -1

func (t *Table) reserve() (err error) {
	c := t.cfg
	if t.weights, err = newArray[float32](c.Dim, c.MaxRows, c.shift); err != nil {
		return fmt.Errorf("the weights: %w", err)
	}
	for _, p := range t.parts {
		a, err := newArray[float32](p.Width, c.MaxRows, c.shift)
		if err != nil {
			return fmt.Errorf("the state %q: %w", p.Name, err)
		}
		t.state = append(t.state, a)
	}
	if c.Usage {
		if t.usage, err = newArray[uint32](1, c.MaxRows, c.shift); err != nil {
			return fmt.Errorf("the usage: %w", err)
		}
	}
	t.slab = make([]slab, len(t.weights.slabs))
	for i := range t.slab {
		t.slab[i].state = make([][]float32, len(t.state))
	}
	if t.weights.space != nil {
		t.showSlab(0)
	}
	t.index, err = newIndex(c.MaxRows, rowinit.Mix(t.stream), c.shift)
	return err
}

// showSlab adds slab i of the state to the slices that the rule gets.
func (t *Table) showSlab(i int) {
	for k, a := range t.state {
		t.slab[i].state[k] = a.slabs[i]
	}
}

func (t *Table) release() error {
	all := []releaser{t.weights, t.usage}
	for _, a := range t.state {
		all = append(all, a)
	}
	if t.index != nil {
		all = append(all, t.index.arena.lines)
	}
	return releaseAll(all...)
}

// Close frees all memory. It must not run concurrently with other methods; later calls return
// ErrClosed or have no effect.
func (t *Table) Close() error {
	if t.closed.Swap(true) {
		return nil
	}
	if err := t.release(); err != nil {
		return fmt.Errorf("rows: table %q: %w", t.cfg.Name, err)
	}
	return nil
}

// Dim returns the number of weights of a row.
func (t *Table) Dim() int { return t.cfg.Dim }

// PushDim returns the number of values of a row of a push: Dim gradients, then the rule's counts.
func (t *Table) PushDim() int { return t.grad }

// Parts returns the parts of a row's state, in order. The caller must not change it.
func (t *Table) Parts() []optim.RowPart { return t.parts }

// Width returns the number of values of a row with its state, in the layout of Import.
func (t *Table) Width() int { return t.width }

// SetEpoch sets the epoch for touches. The caller chooses its meaning (a pass, a day); the counter
// may wrap.
func (t *Table) SetEpoch(epoch uint16) { t.epoch.Store(uint32(epoch)) }

// Epoch returns the epoch, initially 0.
func (t *Table) Epoch() uint16 { return uint16(t.epoch.Load()) }
