package shard

import "sync/atomic"

// counts are the table's counters. Made and written are for tests.
type counts struct {
	pulled, pushed, missed, storeHits, made, denied atomic.Int64
	prefetched, evicted, written, deleted           atomic.Int64
	both                                            atomic.Int64 // rows of both tiers
}

// Stats has the size and counters of a table on this server; the values are not from one moment.
type Stats struct {
	Rows        int64 `json:"rows"`         // rows in memory
	StoredRows  int64 `json:"stored_rows"`  // rows only in the store
	Bytes       int64 `json:"bytes"`        // resident bytes of the rows in memory
	StoredBytes int64 `json:"stored_bytes"` // bytes in the store
	// Pulled and Pushed count keys, and Missed those not in memory, in tables with a store. A
	// duplicate key of a batch is missed twice.
	Pulled int64 `json:"pulled_keys"`
	Pushed int64 `json:"pushed_keys"`
	Missed int64 `json:"missed_keys"`
	// Found counts missed keys that the store had, Denied pulled and pushed keys without a row,
	// Evicted rows that left memory, Deleted rows deleted by Shrink.
	Found   int64 `json:"found_keys"`
	Denied  int64 `json:"denied_keys"`
	Evicted int64 `json:"evicted_rows"`
	Deleted int64 `json:"deleted_rows"`
	// Prefetched counts rows loaded by Prefetch: they were not missed.
	Prefetched int64 `json:"prefetched_rows"`
}

// Stats returns the table's statistics. Cost: some 100 locks.
func (t *Table) Stats() Stats {
	c, m := &t.counts, t.rows.Stats()
	s := Stats{
		Rows: int64(m.Rows), Bytes: int64(m.Resident()), Pulled: c.pulled.Load(), Pushed: c.pushed.Load(),
		Missed: c.missed.Load(), Found: c.storeHits.Load(), Denied: c.denied.Load() + int64(m.Denied) + int64(m.Dropped),
		Evicted: c.evicted.Load(), Deleted: c.deleted.Load(), Prefetched: c.prefetched.Load(),
	}
	if t.store != nil {
		has := t.store.Table(t.cfg.Number)
		s.StoredRows, s.StoredBytes = has.Rows-c.both.Load(), has.Bytes
	}
	return s
}
