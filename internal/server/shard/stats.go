package shard

import (
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/server/rows"
)

// counts are the counters of Stats that other objects do not have.
type counts struct {
	pulled, pushed, missed, storeHits, made, denied atomic.Int64
	prefetched, evicted, written, deleted           atomic.Int64
	both                                            atomic.Int64 // rows of both tiers
}

// Stats are a table's statistics; the values are not from one moment.
type Stats struct {
	// Memory has the statistics of the rows in memory, Resident among them. Its Denied and Dropped
	// count keys that Admission rejected: pulls of a table without a store, and gradients.
	Memory rows.Stats
	// MemoryRows is the number of rows in memory, MostRows the budget's limit.
	MemoryRows, MostRows int
	// StoreRows is the number of rows only in the store, StoreBytes the store's size.
	StoreRows, StoreBytes int64
	// Pulled and Pushed count the keys of Pull and Push. Missed counts keys not in memory, in
	// tables with a store: StoreHits were in the store, Made got a new row, and Denied were not
	// admitted. A duplicate key of a batch is missed twice.
	Pulled, Pushed, Missed, StoreHits, Made, Denied int64
	// Prefetched counts rows loaded by Prefetch.
	Prefetched int64
	// Evicted counts rows that left memory, Written rows put into the store by eviction, Deleted
	// rows deleted by Shrink.
	Evicted, Written, Deleted int64
	// Waits counts calls that waited for free memory.
	Waits int64
}

// Stats returns the table's statistics. Cost: some 100 locks.
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
