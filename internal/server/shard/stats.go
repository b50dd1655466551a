package shard

import (
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/server/rows"
)

// counts are what Stats has that nothing else counts.
type counts struct {
	pulled, pushed, missed, storeHits, made, denied atomic.Int64
	prefetched, evicted, written, deleted           atomic.Int64
	both                                            atomic.Int64 // rows in memory of which the store has an image
}

// Stats are those of a table, each of its own moment.
type Stats struct {
	// Memory is of the rows in memory, Resident among them. Its Denied
	// and Dropped count keys without a row that Admission did not admit: pulls of a
	// table without a store, and gradients.
	Memory rows.Stats
	// MemoryRows are those in memory, MostRows how many the budget has room for.
	MemoryRows, MostRows int
	// StoreRows are those in the store alone, StoreBytes what all that it has of
	// the table takes there.
	StoreRows, StoreBytes int64
	// Pulled and Pushed are keys of Pull and Push. Missed of them were not in
	// memory, which happens in tables with a store: StoreHits of these were in the
	// store, Made got a row for the first time, and Denied were not admitted. A key
	// that a batch holds twice is missed twice.
	Pulled, Pushed, Missed, StoreHits, Made, Denied int64
	// Prefetched are rows that Prefetch has brought in.
	Prefetched int64
	// Evicted are rows that left memory, Written those that were put into the
	// store for that, Deleted what Shrink deleted.
	Evicted, Written, Deleted int64
	// Waits is how often a call waited for room in memory.
	Waits int64
}

// Stats returns the table's statistics. Its cost is that of some 100 locks.
func (t *Table) Stats() Stats {
	c := &t.counts
	s := Stats{
		Memory: t.rows.Stats(), Pulled: c.pulled.Load(), Pushed: c.pushed.Load(), Missed: c.missed.Load(),
		StoreHits: c.storeHits.Load(), Made: c.made.Load(), Denied: c.denied.Load(), Prefetched: c.prefetched.Load(),
		Evicted: c.evicted.Load(), Written: c.written.Load(), Deleted: c.deleted.Load(),
	}
	s.MemoryRows, s.MostRows = s.Memory.Rows, s.Memory.MaxRows
	if t.store != nil {
		has := t.store.Table(t.cfg.Number)
		s.StoreRows, s.StoreBytes = has.Rows-c.both.Load(), has.Bytes
		_, _, s.Waits = t.room.counts()
	}
	return s
}
