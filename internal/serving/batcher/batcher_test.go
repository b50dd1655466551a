package batcher

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestDueEndsTheWait: a batch is due when it is full, when the next call has no space in it, or
// when the first call has waited long enough.
func TestDueEndsTheWait(t *testing.T) {
	c := Config{Rows: 8, Wait: 10}
	for _, test := range []struct {
		rows   []int
		waited time.Duration
		n      int
		wait   time.Duration
	}{
		{[]int{1}, 0, 0, 10},
		{[]int{1}, 9, 0, 1},
		{[]int{1}, 10, 1, 0},
		{[]int{1, 2, 3}, 4, 0, 6},
		{[]int{4, 4}, 0, 2, 0},
		{[]int{4, 3, 2}, 0, 2, 0},
		{[]int{20, 1}, 0, 1, 0},
		{[]int{7, 20}, 0, 1, 0},
		{[]int{3, 3}, 99, 2, 0},
	} {
		if n, wait := c.due(test.rows, test.waited); n != test.n || wait != test.wait {
			t.Errorf("%v after %d: %d calls, wait %d, want %d and %d", test.rows, test.waited, n, wait, test.n, test.wait)
		}
	}
}

// TestWaitFollowsTheConsumer: a request waits for others at most ten times as long as recent
// batches took, and at most the limit.
func TestWaitFollowsTheConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int](Config{Rows: 4, Wait: 10 * time.Millisecond, Queue: 6})
		for i, test := range []struct{ took, wait time.Duration }{
			{100 * time.Microsecond, 10 * time.Millisecond},
			{100 * time.Microsecond, time.Millisecond},
			{4 * time.Millisecond, time.Millisecond},
			{0, 10 * time.Millisecond}, // of (3·0.1 + 4)/4 ms
		} {
			start := time.Now()
			go q.Do(t.Context(), i, 1) //nolint:errcheck // the batch is what is tested
			batch := q.Next()
			if wait := time.Since(start); wait != test.wait {
				t.Errorf("batch %d is due after %v, want %v", i, wait, test.wait)
			}
			time.Sleep(test.took)
			batch[0].Finish(nil)
		}
	})
}

// TestQueueGroupsCalls: calls within the wait share a batch, in their order, and a call that leaves
// is in none.
func TestQueueGroupsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int](Config{Rows: 4, Wait: 10 * time.Millisecond, Queue: 6})
		start := time.Now()
		do := func(item, rows int, limit time.Duration, want error) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if err := q.Do(ctx, item, rows); !errors.Is(err, want) {
				t.Errorf("call %d: %v, want %v", item, err, want)
			}
		}
		failed := errors.New("failed")
		go do(1, 1, time.Second, nil)
		time.Sleep(time.Millisecond)
		go do(2, 1, time.Millisecond, context.DeadlineExceeded)
		time.Sleep(3 * time.Millisecond)
		go do(3, 2, time.Second, failed)
		items := func(batch []*Call[int], err error) (out []int) {
			for _, c := range batch {
				out = append(out, c.Item)
				c.Finish(err)
			}
			return out
		}
		batch := q.Next()
		if took := time.Since(start); took != 10*time.Millisecond {
			t.Errorf("the batch is due after %v", took)
		}
		first, last := items(batch[:1], nil), items(batch[1:], failed)
		if got := append(first, last...); !slices.Equal(got, []int{1, 3}) {
			t.Errorf("batch %v", got)
		}
		go do(4, 5, time.Second, nil) // larger than a batch: due immediately
		synctest.Wait()
		if full := (*FullError)(nil); !errors.As(q.Do(t.Context(), 5, 2), &full) || full.Waiting != 5 || q.Waiting() != 5 {
			t.Errorf("no space: %v", full)
		}
		if got := items(q.Next(), nil); !slices.Equal(got, []int{4}) {
			t.Errorf("batch %v", got)
		}
		go do(6, 1, time.Second, nil)
		synctest.Wait()
		q.Close()
		do(7, 1, time.Second, ErrClosed)
		if got := items(q.Next(), nil); !slices.Equal(got, []int{6}) || q.Next() != nil {
			t.Errorf("after the end: %v", got)
		}
		synctest.Wait()
	})
}
