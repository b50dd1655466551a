// Package shard is one server's part of a sparse table in two tiers: rows in memory
// (internal/server/rows), within a budget of bytes, and the other rows in a store on SSD
// (internal/server/store). Without a store all rows are in memory.
//
// # Tiers
//
// Memory has precedence: a row in memory is current, and its image in the store may be old. Other
// rows are as in the store, or were never changed. A loaded row stays in the store, so that the
// next eviction is free unless the row was changed. Rows never pushed are dropped without a write:
// the key determines the values.
//
// Rows are loaded and evicted under one lock, the gate:
//
//   - a call that reads the store and then writes rows to memory, found or new ones,
//     holds the gate for reading throughout;
//   - a call that drops rows from memory, or deletes rows from the store, holds the gate
//     for writing.
//
// Data from the store is therefore current when written to memory: a row that another call has
// loaded since is still in memory, and wins. No new row and no older image replaces a row.
//
// An eviction has four steps. It chooses cold rows; copies the images of changed rows and clears
// their flag Changed; puts the images into the store; and, under the gate's write lock and some
// thousand rows at a time, drops rows not changed since. The other rows stay. Only calls that need
// a row of the store, or memory, wait for the store.
//
// # Once
//
// A push has a session and a number. In each stripe of the table a push updates all its keys, or
// none, together with the session's applied sequence number (rows.PushOnce). If some keys are in
// the store, their rows are loaded and the push is repeated, except in stripes with the new number.
//
// # Checkpoints
//
// Save writes a snapshot of the store and a walk over memory while pushes continue. Each piece of
// the walk has its stripe's applied sequence numbers, so that a log can be replayed onto each row
// from the end of the row's image. Changed rows of pieces not yet walked stay in memory, because
// the snapshot does not have them: if both files have a row, memory's image wins on load.
package shard

import (
	"fmt"
	"math"
	"time"

	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/store"
)

// Config configures a table's part. The zero value is not valid: see rows.Config for the required
// fields of Rows.
type Config struct {
	// Rows configures the table in memory. Admit must be nil: see Admission. Usage is enabled as
	// needed: with a Store, for Deltas and for a Shrink by days. MemoryBytes lowers MaxRows to the
	// rows that fit.
	Rows rows.Config
	// Number is the table's number in the store.
	Number uint32
	// Store holds the rows that do not fit into memory; nil: no store. The store must have no row
	// of the table: after a crash the rows of memory are missing, and Load restores all rows.
	// Table.Close leaves the store open.
	Store store.Store
	// MemoryBytes limits the memory of the rows with their index, as in rows.Stats.Resident; it
	// must fit at least 4096 rows. 0 means no limit, and requires a nil Store. A full table without
	// a Store rejects new rows with rows.ErrFull.
	MemoryBytes int64
	// Admission decides which keys get a row.
	Admission Admission
	// Policy decides which rows are evicted first; nil: byUse.
	Policy Policy
	// Shrinker ages and deletes rows by days; nil: neither.
	Shrinker Shrinker
	// Deltas retains the data for Save since an epoch: the rows' Usage, and deleted keys (8 bytes)
	// until Committed.
	Deltas bool
}

const (
	// readers is the number of goroutines that read the store: an SSD read takes some 100 µs, and
	// concurrent reads do not slow each other.
	readers    = 8
	memoryWait = time.Minute // maximum wait of a call for free memory
	leastRows  = 4096
)

// Validate returns an error for each setting that is missing or out of its range.
func (c *Config) Validate() error {
	bad := faults.In(fmt.Sprintf("shard: table %q: ", c.Rows.Name))
	bad.Add(c.Rows.Validate())
	bad.If(c.Rows.Admit != nil, "Rows.Admit is set: want an Admission")
	bad.If(c.MemoryBytes < 0, "%d bytes of memory: want 0 (no limit) or more", c.MemoryBytes)
	bad.If(c.MemoryBytes == 0 && c.Store != nil, "a store without a limit of memory: nothing would go there; set MemoryBytes")
	c.Admission.check(bad.If)
	if err := bad.Err(); err != nil {
		return err
	}
	if r := c.rowsConfig(); c.MemoryBytes > 0 && r.MaxRows < leastRows {
		least := costOf(r, leastRows)
		bad.If(true, "%d bytes of memory have room for %d rows: want room for %d, %d bytes or more", c.MemoryBytes, r.MaxRows, leastRows, least)
	}
	if c.Store != nil {
		has := c.Store.Table(c.Number).Rows
		bad.If(has > 0, "the store has %d rows of table %d already: want a store without them; Load brings a checkpoint's rows back", has, c.Number)
	}
	return bad.Err()
}

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

// roomOf returns the number of rows that fit into a budget.
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

// costOf returns the maximum memory of a table with n rows, by the layout of package rows: arrays
// in whole pages, and an index of 2 KiB chunks in up to 4096 segments, with lines of five slots
// that are 75 % full just after growth.
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
	array(segments*perSegment + 16*perSegment) // some segments are being rebuilt
	return total + segments*48 + 4*(segments+16)*perSegment/chunk
}
