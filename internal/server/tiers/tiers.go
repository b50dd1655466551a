// Package tiers provides tables of internal/server/shard for internal/server/engine: rows in
// memory, within a budget, and the other rows on SSD.
package tiers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/shard"
	"github.com/ringo-ml/ringo/internal/server/store"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Config configures the tiers. The zero value is memory without a limit.
type Config struct {
	// Dir is a scratch directory for rows that do not fit into memory, created if missing. The
	// index takes 9 to 10 bytes per row in addition to MemoryBytes. Contents of an earlier process
	// are removed, because checkpoints and logs have all rows. Empty: no second tier.
	Dir string
	// MemoryBytes limits the memory of all tables' rows, divided for about equal numbers of rows
	// per table. 0 means no limit, and requires an empty Dir.
	MemoryBytes int64
	// DiskBytes limits the files in Dir; 0 means no limit.
	DiskBytes int64
	// Admission selects the keys that get a row, TableAdmission by table name; both override the
	// schema's.
	Admission      shard.Admission
	TableAdmission map[string]shard.Admission
	// Deltas retains the data for checkpoints of changes: 4 bytes per row, which tables with a Dir
	// have anyway, and the keys deleted since the last checkpoint.
	Deltas bool
	// DeleteAfter is the number of days without a pull or push until a row is deleted, for tables
	// with a rule that does not decide this; 0: never.
	DeleteAfter int
	// Begin, unless nil, puts rows with initial weights into each new table: see shard.Table.Begin.
	// It is for tables without a checkpoint.
	Begin func(table schema.Sparse, put func(keys []uint64, weights []float32) error) error
}

// Tiers creates a server's tables.
type Tiers struct {
	c       Config
	lock    *dirlock.Lock
	store   store.Store // nil without Dir
	budgets []int64     // indexed by table
	tables  []schema.Sparse
}

// Open prepares the tiers for the tables of a schema. Close them after the tables.
func Open(c Config, s schema.Schema) (*Tiers, error) {
	if err := c.named(s); err != nil {
		return nil, err
	}
	if (c.Dir != "") != (c.MemoryBytes > 0) || c.MemoryBytes < 0 || c.DeleteAfter < 0 {
		return nil, fmt.Errorf("tiers: %d bytes of memory with the directory %q, deleting after %d days: want a limit with a directory and none without one, and days from 0", c.MemoryBytes, c.Dir, c.DeleteAfter)
	}
	t := &Tiers{c: c, tables: s.Sparse}
	var err error
	if t.budgets, err = budgets(c.MemoryBytes, s); err != nil || c.Dir == "" {
		return t, err
	}
	if err := t.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("tiers: %w", err), t.Close())
	}
	return t, nil
}

// named returns an error for admissions of missing tables.
func (c Config) named(s schema.Schema) error {
	for name := range c.TableAdmission {
		if !slices.ContainsFunc(s.Sparse, func(t schema.Sparse) bool { return t.Name == name }) {
			var names []string
			for _, t := range s.Sparse {
				names = append(names, t.Name)
			}
			return fmt.Errorf("tiers: admission of table %q: there is none, but there are %q", name, names)
		}
	}
	return nil
}

// budgets divides memory among tables in proportion to the size of a row with its index entry.
func budgets(total int64, s schema.Schema) (out []int64, err error) {
	var sum float64
	sizes := make([]float64, len(s.Sparse))
	for i, x := range s.Sparse {
		parts, err := x.Parts()
		if err != nil {
			return nil, fmt.Errorf("tiers: table %q: %w", x.Name, err)
		}
		values := x.Dim
		for _, p := range parts {
			values += p.Width
		}
		sizes[i] = 4*float64(values) + 4 + 17.1 // see internal/server/rows
		sum += sizes[i]
	}
	for _, size := range sizes {
		out = append(out, int64(float64(total)*size/sum))
	}
	return out, nil
}

func (t *Tiers) open() (err error) {
	if err := os.MkdirAll(t.c.Dir, 0o777); err != nil {
		return err
	}
	if t.lock, err = dirlock.Take(t.c.Dir); err != nil {
		return err
	}
	dir := t.rowsDir()
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	s, err := store.OpenSegments(dir, t.c.DiskBytes)
	if err != nil {
		return err // t.store stays a nil interface
	}
	t.store = s
	return nil
}

func (t *Tiers) rowsDir() string { return filepath.Join(t.c.Dir, "rows") }

// Close closes the store and removes its rows.
func (t *Tiers) Close() error {
	var errs []error
	if t.store != nil {
		errs = append(errs, t.store.Close(), os.RemoveAll(t.rowsDir()))
	}
	if t.lock != nil {
		errs = append(errs, t.lock.Release())
	}
	return errors.Join(errs...)
}

func (c Config) admission(t schema.Sparse) (shard.Admission, error) {
	if a, ok := c.TableAdmission[t.Name]; ok {
		return a, nil
	}
	if t.Admission == "" {
		return c.Admission, nil
	}
	own := shard.Admission{FilterBytes: c.Admission.FilterBytes}
	if err := own.UnmarshalText([]byte(t.Admission)); err != nil {
		return own, fmt.Errorf("tiers: table %q: admission %q: %w", t.Name, t.Admission, err)
	}
	return own, nil
}

// Make creates table i, for engine.Config.Make.
func (t *Tiers) Make(i int, c rows.Config) (engine.Table, error) {
	admission, err := t.c.admission(t.tables[i])
	if err != nil {
		return nil, err
	}
	sc := shard.Config{
		Rows: c, Number: uint32(i), Store: t.store, MemoryBytes: t.budgets[i],
		Admission: admission, Deltas: t.c.Deltas,
	}
	rule := c.Rule
	if b, ok := rule.(*optim.Bounded); ok {
		rule = b.RowRule
	}
	if click, ok := rule.(*optim.ClickRows); ok {
		clicks, err := shard.NewClicks(click, c.Dim)
		if err != nil {
			return nil, err
		}
		sc.Shrinker, sc.Policy = clicks, shard.ByScore(clicks)
	} else if t.c.DeleteAfter > 0 {
		sc.Shrinker = shard.UnseenDays{After: t.c.DeleteAfter}
	}
	s, err := shard.New(sc)
	if err != nil {
		return nil, err
	}
	if t.c.Begin != nil {
		if err := t.c.Begin(t.tables[i], s.Begin); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}
