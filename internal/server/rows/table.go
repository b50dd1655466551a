// Package rows is one server's shard of a sparse table in memory: rows of weights
// by 64-bit key, made when they are first touched, and updated by the row rules of
// optim.
//
// # Memory
//
// A row has a number, dense from 0; numbers of deleted rows are used again. Weights
// lie in one array, each part of the rule's state in another, and an index of 5-slot
// cache lines finds the number of a key. Nothing is copied when arrays grow, the
// index grows segment by segment by an eighth, and the garbage collector sees none
// of it. Per row:
//
//	weights                     4*dim bytes
//	state                       4*(sum of the widths of the rule's parts)
//	usage, if kept              4
//	index, 64 bytes for 5 slots that are taken to
//	  85 % just before a segment grows      15.1
//	  75 % just after it, chunks rounded    17.1
//
// Rows of width 16 with one float of state take 64 + 4 + 17.1 = 85.1 bytes at most
// while the table grows, all segments at their emptiest at once. What does not
// depend on the rows: 2 MiB at the end of each array, 2 KiB for each of at most 4096
// segments while it has few keys (from 550 keys in a segment on the above holds; 75 %
// becomes 68 %, 18.8 bytes, from 544 to 680), 40 bytes a segment, 4 bytes for each
// 2 KiB of the index, and one more copy of each segment that is just laid out anew.
// With 50 million rows in 4096 segments that is together 0.4 bytes a row.
//
// # Threads
//
// All methods but Close may be called by any number of goroutines. The keys of a
// batch are sorted by lock stripe, each stripe is locked once per batch, and its keys
// are worked on in blocks in which many misses of the caches are under way at once.
// A Pull sees whole rows, no update is lost, and two first touches of a key at once
// make one row. A batch as a whole is not atomic. PushOnce keeps, for each stripe and
// session, the number of the last push that was applied, so that each is applied once;
// WalkPiece shows these marks beside the rows that they belong to.
package rows

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/ringo-ml/ringo/optim"
)

// Config says what a table is. The zero value is not valid: Name, Dim and Rule are
// needed.
type Config struct {
	// Name is the table's; initial weights depend on it.
	Name string
	// Dim is the number of weights in a row, at least 1. Rows of multiples of 16
	// are the fastest: they fill cache lines.
	Dim int
	// Rule updates rows and says what state they have. Of an optim.CountedRule each row
	// of a push has its counts behind the gradient: see PushDim.
	Rule optim.RowRule
	// Init writes the weights with which a row begins. nil: zeros.
	Init Init
	// Seed is that of Init's streams.
	Seed uint64
	// MaxRows is the most rows that the table takes, at most 2^31-1; 0 means 2^28. Address space
	// is reserved for them, and the index has a segment for each 16384, at least 64
	// and at most 4096, of at least 2 KiB each.
	MaxRows int
	// Usage keeps how much each row is used, in 4 bytes.
	Usage bool
	// Admit says whether a key that has no row gets one; push tells a Push from a
	// Pull. nil admits all. It is called by many goroutines at once while they hold
	// locks: it must be quick and must not call the table. For a key that a batch
	// holds more than once it may be called more than once.
	Admit func(key uint64, push bool) bool

	// shift is that of the arrays' slabs, 0 for the system's. Tests set it.
	shift uint
}

const defaultMaxRows = 1 << 28

// Validate reports every setting that is missing or out of its range.
func (c *Config) Validate() error {
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("rows: table %q: "+format, append([]any{c.Name}, args...)...))
		}
	}
	fault(c.Name == "", "no name: initial weights depend on it")
	fault(c.Dim < 1 || c.Dim > 1<<20, "%d weights in a row: want 1 to %d", c.Dim, 1<<20)
	fault(c.MaxRows < 0 || c.MaxRows > math.MaxInt32, "at most %d rows: want 1 to %d, or 0 for %d", c.MaxRows, math.MaxInt32, defaultMaxRows)
	fault(c.Rule == nil, "no rule to update rows")
	if c.Rule != nil {
		if err := c.Rule.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("rows: table %q: %w", c.Name, err))
		}
		seen := map[string]bool{}
		for _, p := range c.Rule.Parts(max(1, c.Dim)) {
			fault(p.Width < 1, "part %q of the state of %s has %d values in a row: want at least 1", p.Name, c.Rule.Name(), p.Width)
			fault(seen[p.Name], "two parts of the state of %s are named %q", c.Rule.Name(), p.Name)
			seen[p.Name] = true
		}
	}
	return errors.Join(errs...)
}

// PullID identifies a pull, so that one that a trainer repeats after its connection broke is
// recognized.
type PullID struct {
	Session int
	Process uint64 // the process that numbers the pulls; 0: the pull has no identity
	Number  uint64 // from 1
	Oldest  uint64 // the oldest pull of the session without an answer when this one was made
}

// Faults of batches. They are wrapped with the table and what was wrong.
var (
	// ErrFull says that rows could not be made: the table has MaxRows, or the system
	// gave no memory.
	ErrFull = errors.New("the table is full")
	// ErrDuplicate says that a batch of gradients holds a key twice.
	ErrDuplicate = errors.New("a key is twice in the batch")
	// ErrClosed says that the table was closed.
	ErrClosed = errors.New("the table is closed")
)

// Stripes are as many locks as the rows are cut over. More of them wait less for
// each other and have smaller groups of keys.
const (
	stripeBits = 6
	stripes    = 1 << stripeBits
)

// stripe is a lock in a pair of cache lines of its own, which processors fetch
// together.
type stripe struct {
	sync.Mutex
	rows, denied, dropped, deleted int // see Stats
	_                              [128 - 8 - 4*8]byte
}

// Table is a shard of a sparse table.
type Table struct {
	cfg    Config
	stream uint64 // the table's part of Init's streams
	parts  []optim.RowPart
	width  int // values of a row with its state

	counted optim.CountedRule // nil: the rule only takes gradients
	grad    int               // values of a row of a push
	first   Init              // of rows; the rest of Config.Init's comes when counted extends them

	stripes [stripes]stripe
	index   *index
	weights *array[float32]
	state   []*array[float32]
	usage   *array[uint32] // nil: not kept

	slab []slab // what the rule sees, for each slab of the arrays

	numbers struct {
		sync.Mutex
		used int   // rows below were taken ever
		idle int   // of them not taken now
		free int32 // the first of them, -1 for none; its first weight is the next
	}

	sessions sessions
	epoch    atomic.Uint32
	turn     atomic.Uint32 // the stripe with which the next batch begins
	closed   atomic.Bool

	spare struct {
		sync.Mutex
		list []*batch
	}
}

// slab are the arrays' memory as the rule wants it.
type slab struct{ state [][]float32 }

// New makes an empty table, which holds address space and memory until Close.
func New(cfg Config) (*Table, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.MaxRows == 0 {
		cfg.MaxRows = defaultMaxRows
	}
	if cfg.Init == nil {
		cfg.Init = Constant(0)
	}
	if cfg.shift == 0 {
		cfg.shift = defaultShift
	}
	t := &Table{cfg: cfg, stream: tableStream(cfg.Seed, cfg.Name), parts: cfg.Rule.Parts(cfg.Dim), width: cfg.Dim, grad: cfg.Dim, first: cfg.Init}
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

// none is no row.
const none = -1

// reserve makes the arrays.
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
	t.index, err = newIndex(c.MaxRows, mix(t.stream), c.shift)
	return err
}

// showSlab makes a slab of the state known to the rule.
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

// Close gives all memory back. It must not be called while another method runs;
// those called afterwards return ErrClosed, or nothing.
func (t *Table) Close() error {
	if t.closed.Swap(true) {
		return nil
	}
	if err := t.release(); err != nil {
		return fmt.Errorf("rows: table %q: %w", t.cfg.Name, err)
	}
	return nil
}

// Dim is the number of weights of a row.
func (t *Table) Dim() int { return t.cfg.Dim }

// PushDim is the number of values of a row of a push: Dim gradients, and behind them
// the counts that the rule may want.
func (t *Table) PushDim() int { return t.grad }

// Parts are the parts of the state of a row, in order. It must not be changed.
func (t *Table) Parts() []optim.RowPart { return t.parts }

// Width is the number of values of a row with its whole state: Dim weights, then
// the parts one after the other. Export and Import move rows so.
func (t *Table) Width() int { return t.width }

// SetEpoch sets the epoch that touches are marked with. What an epoch is (a pass, an
// hour, a day) is the caller's choice; the counter may wrap.
func (t *Table) SetEpoch(epoch uint16) { t.epoch.Store(uint32(epoch)) }

// Epoch returns what SetEpoch set, 0 at first.
func (t *Table) Epoch() uint16 { return uint16(t.epoch.Load()) }
