package liveness

import (
	"testing"
	"time"
)

// A wait lasts for its limit, and longer by what it was suspended for, whenever that was.
func TestPatience(t *testing.T) {
	for _, limit := range []time.Duration{time.Millisecond, 250 * time.Millisecond, 8 * time.Second, 10 * time.Minute} {
		for suspended := -1; suspended < pieces; suspended++ {
			now := time.Unix(0, 0)
			p, ran, waits := NewPatience(limit, now), time.Duration(0), 0
			for ; ; waits++ {
				wait := p.Wait()
				if wait <= 0 || waits > 2*pieces {
					t.Fatalf("%v: %v to wait after %d waits", limit, wait, waits)
				}
				if waits == suspended {
					now = now.Add(1000 * time.Hour)
				} else {
					ran += wait
				}
				if now = now.Add(wait); p.Spent(now) {
					break
				}
			}
			if ran > limit || ran < limit-limit/100 {
				t.Errorf("%v, suspended in wait %d: spent after %v", limit, suspended, ran)
			}
		}
	}
}

// Who only asks waits for nothing.
func TestNoPatience(t *testing.T) {
	now := time.Now()
	p := NewPatience(0, now)
	if !p.Spent(now) || p.Wait() > 0 {
		t.Error("a limit of 0 is not spent")
	}
}

func TestCounted(t *testing.T) {
	for _, c := range []struct{ since, want time.Duration }{
		{-time.Second, 0}, {0, 0}, {time.Second, time.Second}, {2 * time.Second, time.Second / 2}, {time.Hour, time.Second / 3600},
	} {
		if got := Elapsed(c.since, time.Second); got < c.want-time.Microsecond || got > c.want {
			t.Errorf("%v counts for %v, want %v", c.since, got, c.want)
		}
	}
}
