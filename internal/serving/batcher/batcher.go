// Package batcher groups the requests of concurrent callers into batches for one consumer.
//
//	q := batcher.New[*request](batcher.Config{Rows: 64, Wait: 2 * time.Millisecond, Queue: 1024})
//	go func() {
//		for batch := q.Next(); batch != nil; batch = q.Next() {
//			… // one forward pass for all calls
//			for _, c := range batch {
//				c.Finish(nil)
//			}
//		}
//	}()
//	err := q.Do(ctx, r, len(r.rows)) // of any number of goroutines
//
// # Cost
//
// A request waits at most Wait, and at most ten times as long as recent batches took, for further
// requests, and then for the batches before its own. Without the second limit, requests of a model
// of 30 µs waited 2 ms for a batch that saves less than 1 ms of computation. The memory is bounded
// by Queue rows.
package batcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Config limits a Queue.
type Config struct {
	// Rows is the number of rows that end the wait for further requests. A larger request is a
	// separate batch.
	Rows int
	// Wait is the maximum wait of a request for further requests. The wait is also at most ten
	// times the consumer's time for a batch.
	Wait time.Duration
	// Queue is the maximum number of waiting rows.
	Queue int
}

// patience is the limit of a wait, in times of a batch.
const patience = 10

// ErrClosed is the error of a call after Close.
var ErrClosed = errors.New("the queue is closed")

// FullError is the error of a call without space in the queue.
type FullError struct{ Waiting, Limit int }

// Error returns the number of waiting rows and the limit.
func (e *FullError) Error() string {
	return fmt.Sprintf("the queue is full: %d rows wait, at most %d: try again later", e.Waiting, e.Limit)
}

// Call is a request of a caller.
type Call[T any] struct {
	Item  T
	rows  int
	ctx   context.Context
	since time.Time
	done  chan error
}

// Finish ends the call: Do returns err. A caller that has left receives no result.
func (c *Call[T]) Finish(err error) { c.done <- err }

// Queue holds the calls that wait. Any number of goroutines call Do, and one calls Next.
type Queue[T any] struct {
	cfg    Config
	mu     sync.Mutex
	calls  []*Call[T] // the oldest first
	rows   int        // rows of calls
	closed bool
	wake   chan struct{} // one signal after a change
	given  time.Time     // time of the consumer's last batch, or zero
	took   time.Duration // smoothed time of the consumer for a batch, or 0
}

// New returns an empty queue.
func New[T any](cfg Config) *Queue[T] { return &Queue[T]{cfg: cfg, wake: make(chan struct{}, 1)} }

// Do adds a call with a number of rows, and blocks until its Finish or the end of ctx. The error is
// the error of Finish, the cause of ctx, a *FullError or ErrClosed. After the end of ctx the
// consumer may still read and write item.
func (q *Queue[T]) Do(ctx context.Context, item T, rows int) error {
	c := &Call[T]{Item: item, rows: rows, ctx: ctx, since: time.Now(), done: make(chan error, 1)}
	if err := q.add(c); err != nil {
		return err
	}
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		q.remove(c)
		return context.Cause(ctx)
	}
}

func (q *Queue[T]) add(c *Call[T]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return ErrClosed
	case q.rows+c.rows > q.cfg.Queue:
		return &FullError{q.rows, q.cfg.Queue}
	}
	q.calls, q.rows = append(q.calls, c), q.rows+c.rows
	if len(q.calls) == 1 || q.rows >= q.cfg.Rows {
		q.signal() // other calls change no batch: Next would wake for each of them
	}
	return nil
}

// remove removes a call that still waits, so that abandoned calls use no space.
func (q *Queue[T]) remove(c *Call[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.calls, c); i >= 0 {
		q.calls, q.rows = slices.Delete(q.calls, i, i+1), q.rows-c.rows
	}
}

func (q *Queue[T]) signal() {
	select {
	case q.wake <- struct{}{}:
	default: // the consumer has a signal already
	}
}

// Next blocks until a batch is due and returns its calls, in the order of Do. It returns nil after
// Close, when no call waits. From Next to Next is the consumer's time for a batch.
func (q *Queue[T]) Next() []*Call[T] {
	if !q.given.IsZero() {
		q.took = max(1, (3*cmp.Or(q.took, time.Since(q.given))+time.Since(q.given))/4)
	}
	for {
		batch, wait, end := q.take(time.Now())
		if batch != nil || end {
			q.given = time.Now()
			return batch
		}
		if wait == 0 {
			<-q.wake
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-q.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// take removes the next batch, or returns the time until a batch is due: 0 without calls.
func (q *Queue[T]) take(now time.Time) (batch []*Call[T], wait time.Duration, end bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls) == 0 {
		return nil, 0, q.closed
	}
	var rows []int
	for sum := 0; len(rows) < len(q.calls) && sum < q.cfg.Rows; sum += rows[len(rows)-1] {
		rows = append(rows, q.calls[len(rows)].rows)
	}
	cfg := q.cfg
	if q.took > 0 {
		cfg.Wait = min(cfg.Wait, patience*q.took)
	}
	n, wait := cfg.due(rows, now.Sub(q.calls[0].since))
	if q.closed {
		n = max(n, 1)
	}
	if n == 0 {
		return nil, wait, false
	}
	batch = slices.Clone(q.calls[:n])
	q.calls = slices.Delete(q.calls, 0, n)
	for _, c := range batch {
		q.rows -= c.rows
	}
	return batch, 0, false
}

// due returns the number of calls of the batch that is due, or 0 and the time until then. rows are
// the rows of each call, and waited is the wait of the first call.
func (c Config) due(rows []int, waited time.Duration) (n int, wait time.Duration) {
	sum := 0
	for n < len(rows) && (n == 0 || sum+rows[n] <= c.Rows) {
		sum += rows[n]
		n++
	}
	if sum >= c.Rows || n < len(rows) || waited >= c.Wait {
		return n, 0
	}
	return 0, c.Wait - waited
}

// Close ends the queue: further calls are rejected, and Next returns the calls that wait.
func (q *Queue[T]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

// Waiting returns the number of waiting rows.
func (q *Queue[T]) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.rows
}
