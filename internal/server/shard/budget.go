package shard

import (
	"fmt"
	"sync"
	"time"
)

// memoryBudget counts the rows in memory. A caller reserves memory before it creates rows, and
// returns the unused part. The count never exceeds maxRows.
type memoryBudget struct {
	maxRows   int
	high, low int // eviction begins above high and ends at low
	limit     time.Duration
	wake      chan struct{} // wakes the evictor

	mu           sync.Mutex
	rows         int    // rows in memory or reserved
	waiting      int    // rows for which calls wait
	begun, ended uint64 // rounds of eviction
	err          error  // error of the last finished round
	news         chan struct{}
}

func newRoom(most int, limit time.Duration) *memoryBudget {
	return &memoryBudget{maxRows: most, high: most - most/16, low: most - most/8, limit: limit, wake: make(chan struct{}, 1)}
}

// take reserves memory for n rows, at most an eighth of all, and waits for evictions if necessary.
// An error comes from an eviction round that began after the call.
func (r *memoryBudget) take(n int) error {
	if r == nil {
		return nil // rows are in memory only: internal/server/rows has the limit
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rows+n > r.maxRows {
		if err := r.await(n); err != nil {
			return err
		}
	}
	r.rows += n
	if r.rows > r.high {
		r.nudge()
	}
	return nil
}

// try is take without a wait. It reports whether the rows fit.
func (r *memoryBudget) try(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	fits := r.rows+n <= r.maxRows
	if fits {
		r.rows += n
	}
	if !fits || r.rows > r.high {
		r.nudge()
	}
	return fits
}

func (r *memoryBudget) await(n int) error {
	r.waiting += n
	defer func() { r.waiting -= n }()
	timer := time.NewTimer(r.limit)
	defer timer.Stop()
	for from := r.begun; r.rows+n > r.maxRows; {
		if r.ended > from && r.err != nil {
			return fmt.Errorf("memory has no room for %d rows beside %d, and rows cannot leave: %w", n, r.rows, r.err)
		}
		r.nudge()
		if r.news == nil {
			r.news = make(chan struct{})
		}
		news := r.news
		r.mu.Unlock()
		late := false
		select {
		case <-news:
		case <-timer.C:
			late = true
		}
		r.mu.Lock()
		if late {
			return fmt.Errorf("no memory for %d more rows (%d in use) after %v: raise MemoryBytes", n, r.rows, r.limit)
		}
	}
	return nil
}

func (r *memoryBudget) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *memoryBudget) notify() {
	if r.news != nil {
		close(r.news)
		r.news = nil
	}
}

// give returns memory for n rows.
func (r *memoryBudget) give(n int) {
	if r == nil {
		return
	}
	if n == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows -= n
	r.notify()
}

// begin starts a round and returns the number of rows to evict; 0 means no round.
func (r *memoryBudget) begin() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	want := r.rows - max(r.low-r.waiting, r.maxRows/2)
	if want <= 0 {
		return 0
	}
	r.begun++
	return want
}

func (r *memoryBudget) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.err = r.begun, err
	r.notify()
}
