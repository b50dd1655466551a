package metrics

import (
	"testing"
	"time"
)

// What others count is asked for, at the latest when the rank ends.
func TestFollow(t *testing.T) {
	f := New(0, 2)
	at := time.Unix(1700000000, 0)
	f.Follow(Source{Sent: func() int64 { return 77 }, Carried: func() int64 { return 88 }, Queued: func() int { return 9 }, LastHeartbeat: func() time.Time { return at }})()
	if shm, queued := get(f, SentBytes, "shm"), get(f, Queue, "operations"); shm != 88 || queued != 9 {
		t.Errorf("%v bytes in shared memory, %v operations", shm, queued)
	}
	if sent, heard, memory := get(f, SentBytes, "tcp"), get(f, LastHeartbeat, ""), get(f, Resident, ""); sent != 77 || heard != 1.7e9 || !(memory > 1<<20) {
		t.Errorf("%v bytes, heard at %v, %v bytes of memory", sent, heard, memory)
	}
}

// A server that sums counts in rows of its own.
func TestFollowSums(t *testing.T) {
	_, words := layout(OfAggregator, 2)
	f := newFigures(OfAggregator, make([]uint64, words), 1, 2, 0)
	f.Follow(Source{Summed: func() AggregatorStats { return AggregatorStats{3, 40, 50, 6} }})()
	f.Spent(f.of(WaitTime, AggregatorWaitTime), 1, time.Second)
	for id, want := range map[ID]float64{AggregatorExchanges: 3, AggregatorReceived: 40, AggregatorSent: 50, AggregatorQueue: 6} {
		if got := get(f, id, ""); got != want {
			t.Errorf("%s is %v, want %v", id.Row().Name, got, want)
		}
	}
	if waited, memory := get(f, AggregatorWaitTime, "1"), get(f, AggregatorResident, ""); waited != 1 || !(memory > 1<<20) {
		t.Errorf("waited %v s, %v bytes of memory", waited, memory)
	}
}

// A wait counts for the time since the last look, and for two seconds at most.
func TestWaitsAreEstimated(t *testing.T) {
	f := New(0, 3)
	peer, waits := 1, true
	now := time.Now()
	w := &follower{figures: f, source: Source{Waiting: func() (int, bool) { return peer, waits }}, last: now, counted: now.Add(time.Hour), used: now.Add(time.Hour)}
	for _, look := range []struct {
		after time.Duration
		peer  int
		waits bool
	}{{100 * time.Millisecond, 1, true}, {150 * time.Millisecond, 2, true}, {time.Second, 2, false}, {time.Hour, 1, true}, {time.Millisecond, 7, true}} {
		now, peer, waits = now.Add(look.after), look.peer, look.waits
		w.look(now)
	}
	if a, b := get(f, WaitTime, "1"), get(f, WaitTime, "2"); a != 2.1 || b != 0.15 {
		t.Errorf("waited %v s for rank 1 and %v for rank 2, want 2.1 and 0.15", a, b)
	}
}
