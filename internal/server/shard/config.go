// Package shard is one server's part of a sparse table over two tiers: rows in
// memory (internal/server/rows), within a budget of bytes, and the rest in a store on SSD
// (internal/server/store), or nowhere where there is none.
//
// # Tiers
//
// Memory decides. A row that is in memory is the row, whatever the store has of it;
// one that is not is what the store has, or has never been changed. A row that is
// brought in stays in the store, so that it leaves memory again at no cost unless it
// was changed meanwhile. Rows that were never pushed leave without a trace: their
// values follow from their key.
//
// Rows enter and leave under one lock, the gate:
//
//   - who looks for rows in the store and then writes what it found to memory, found
//     rows or fresh ones, holds it for reading from the first to the last;
//   - whoever drops rows from memory, or deletes some from the store, holds it for
//     writing.
//
// So nothing that was read from the store is out of date when it is written to
// memory: a row that somebody else has brought in meanwhile is still there, and
// wins. No row is shadowed by a fresh one or by an older image.
//
// Evicting goes in steps. Cold rows are chosen; the images of those that were changed
// are copied, and their mark Changed is taken away; the images are put into the store;
// under the gate's write lock, which is held for some thousand rows at a time,
// those that no push has marked again are dropped. The others stay. Nobody waits for
// the store but who needs a row of it, or room.
//
// # Once
//
// A push has a session and a number. In each stripe of the table its keys are updated
// together, or not at all, and the session's mark with them (rows.PushOnce). Where some
// are in the store they are brought in and the push is made again, which the marks
// make harmless.
//
// # Checkpoints
//
// Save writes a snapshot of the store and a walk over memory, while pushes go on. Each
// piece of the walk has the marks of its stripe at its moment, so that a log can be
// replayed onto each row from where its image ends. Changed rows of pieces not
// walked yet stay in memory meanwhile, so that the snapshot of the store is as old as
// the rows of memory are new: what a row's image in the store lacks is in memory, and
// memory's image wins when both are loaded.
package shard

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/store"
)

// Config says what a part of a table is. The zero value is not valid: Rows needs what
// rows.Config says.
type Config struct {
	// Rows is the table in memory. Admit must be nil: see Admission. Usage is set
	// where they are needed: with a Store, for Deltas and for a Shrink by days. With
	// MemoryBytes, MaxRows is lowered to what it has room for.
	Rows rows.Config
	// Number is the table's in the store.
	Number uint32
	// Store takes the rows that memory has no room for; nil: there is none. It must
	// have no row of the table: what a crash leaves in it lacks what was in memory,
	// and Load brings all rows back. It is not closed by Close.
	Store store.Store
	// MemoryBytes bounds the memory of the rows with their index, as
	// rows.Stats.Resident counts it: at least what 4096 rows need. 0 is no limit, and
	// for a table without a Store. Without a Store a table that is full refuses
	// new rows with rows.ErrFull.
	MemoryBytes int64
	// Admission says which keys get a row.
	Admission Admission
	// Policy says which rows leave memory first; nil: byUse.
	Policy Policy
	// Shrinker says what days do to rows; nil: nothing.
	Shrinker Shrinker
	// Deltas keeps what SaveDelta needs: the rows' Usage, and deleted keys until Committed
	// (8 bytes each).
	Deltas bool
	// Readers is how many goroutines read the store; 0 means 8. Reads of an SSD
	// take some 100 µs each and do not slow each other down.
	Readers int
	// Wait is how long a call waits at most for room in memory; 0 means a minute.
	Wait time.Duration
}

const (
	defaultReaders = 8
	defaultWait    = time.Minute
	leastRows      = 4096
)

// Validate reports every setting that is missing or out of its range.
func (c *Config) Validate() error {
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("shard: table %q: "+format, append([]any{c.Rows.Name}, args...)...))
		}
	}
	errs = append(errs, c.Rows.Validate())
	fault(c.Rows.Admit != nil, "Rows.Admit is set: want an Admission")
	fault(c.MemoryBytes < 0, "%d bytes of memory: want 0 (no limit) or more", c.MemoryBytes)
	fault(c.MemoryBytes == 0 && c.Store != nil, "a store without a limit of memory: nothing would go there; set MemoryBytes")
	fault(c.Readers < 0 || c.Readers > 1024, "%d readers: want 1 to 1024, or 0 for %d", c.Readers, defaultReaders)
	fault(c.Wait < 0, "waiting for %v: want a positive time, or 0 for %v", c.Wait, defaultWait)
	c.Admission.check(fault)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if r := c.rowsConfig(); c.MemoryBytes > 0 && r.MaxRows < leastRows {
		least := costOf(r, leastRows)
		fault(true, "%d bytes of memory have room for %d rows: want room for %d, %d bytes or more", c.MemoryBytes, r.MaxRows, leastRows, least)
	}
	if c.Store != nil {
		has := c.Store.Table(c.Number).Rows
		fault(has > 0, "the store has %d rows of table %d already: want a store without them; Load brings a checkpoint's rows back", has, c.Number)
	}
	return errors.Join(errs...)
}

// rowsConfig is that of the table in memory.
func (c *Config) rowsConfig() rows.Config {
	r := c.Rows
	ages := c.Shrinker != nil && c.Shrinker.Days()
	r.Usage = r.Usage || c.Store != nil || c.Deltas || ages
	if r.MaxRows == 0 {
		r.MaxRows = 1 << 28
	}
	if c.MemoryBytes > 0 {
		r.MaxRows = min(r.MaxRows, roomOf(r, c.MemoryBytes))
	}
	return r
}

// roomOf is how many rows a budget has room for.
func roomOf(c rows.Config, budget int64) int {
	lo, hi := 0, math.MaxInt32
	for lo < hi {
		mid := lo + (hi-lo+1)/2
		if costOf(c, mid) <= budget {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

// costOf is the most memory that a table made for so many rows takes, as package rows
// lays it out: arrays in whole pages, and an index of 2 KiB chunks in up to 4096
// segments, whose lines of five slots are 75 % full when they have just grown.
func costOf(c rows.Config, n int) int64 {
	const page, smallPage, chunk, chunkKeys = 2 << 20, 64 << 10, 2 << 10, 32 * 5 * 3 / 4
	total := int64(0)
	array := func(bytes int64) {
		unit := int64(smallPage)
		if bytes > 2*page {
			unit = page
		}
		total += (bytes + unit - 1) / unit * unit
	}
	array(4 * int64(c.Dim) * int64(n))
	for _, p := range c.Rule.Parts(c.Dim) {
		array(4 * int64(p.Width) * int64(n))
	}
	if c.Usage {
		array(4 * int64(n))
	}
	segments := int64(64)
	for segments < 4096 && segments<<14 < int64(n) {
		segments *= 2
	}
	perSegment := (int64(n)/segments/chunkKeys + 2) * chunk
	array(segments*perSegment + 16*perSegment) // some are just laid out anew
	return total + segments*48 + 4*(segments+16)*perSegment/chunk
}
