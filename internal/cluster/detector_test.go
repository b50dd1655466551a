package cluster

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/liveness"
)

// How long a peer that says nothing lives, by a clock whose ticks come as given.
func lives(deadAfter, late time.Duration, ticks ...time.Duration) (after time.Duration, lost bool) {
	now := time.Unix(0, 0)
	c, s := pauseClock{beat: time.Second, last: now}, liveness.Detector{Limit: deadAfter}
	start := now
	s.HeardAt(now, late)
	for _, t := range ticks {
		now = now.Add(t)
		if s.Pass(now, c.tick(now), false); s.Lost() {
			return now.Sub(start), true
		}
	}
	return now.Sub(start), false
}

func every(d time.Duration, n int) (out []time.Duration) {
	for range n {
		out = append(out, d)
	}
	return out
}

// Silence counts in full while one's own ticks are in time, hardly where they are late, and for less where the
// peer has told that its own are.
// It holds invariant[silence-while-awake].
func TestSilenceIsWeighed(t *testing.T) {
	const hour = time.Hour
	for _, c := range []struct {
		name       string
		dead, late time.Duration
		ticks      []time.Duration
		after      time.Duration // 0: it is not lost
	}{
		{"in time", 3 * time.Second, 0, every(time.Second, 9), 3 * time.Second},
		{"suspended", 3 * time.Second, 0, []time.Duration{hour, hour, hour}, 0},
		{"suspended, then silent", 3 * time.Second, 0, append([]time.Duration{hour}, every(time.Second, 9)...), hour + 3*time.Second},
		{"twice as late", 3 * time.Second, 0, every(2*time.Second, 9), 12 * time.Second},
		{"a late tick, and the next one soon after", 2 * time.Second, 0, append([]time.Duration{1900 * time.Millisecond, 100 * time.Millisecond}, every(time.Second, 9)...), 4 * time.Second},
		{"a peer that is late", 3 * time.Second, time.Second, every(time.Second, 9), 5 * time.Second},
		{"a peer that is later than can be believed", 3 * time.Second, hour, every(time.Second, 20), 12 * time.Second},
	} {
		after, lost := lives(c.dead, c.late, c.ticks...)
		if lost != (c.after > 0) || lost && after != c.after {
			t.Errorf("%s: lost %v after %v, want %v", c.name, lost, after, c.after)
		}
	}
}

// A tick's lateness is remembered for a while, and that of a suspension as no more than that of a busy machine.
func TestLatenessFades(t *testing.T) {
	now := time.Unix(0, 0)
	c := pauseClock{beat: time.Second, last: now}
	now = now.Add(time.Hour)
	if counts := c.tick(now); counts > time.Millisecond || c.late != maxLate*time.Second || !c.stalled(counts) {
		t.Errorf("an hour counts for %v, late %v", counts, c.late)
	}
	for range 100 {
		now = now.Add(time.Second)
		c.tick(now)
	}
	if c.late > 10*time.Millisecond || c.stalled(time.Second) {
		t.Errorf("late %v after 100 ticks in time", c.late)
	}
}

// A heartbeat that is late by a moment is no silence of --heartbeat-timeout, whatever the phase of the two clocks. It was
// taken for one after little more than half of that.
func TestSilenceIsNoShorterThanTold(t *testing.T) {
	for phase := 100 * time.Millisecond; phase < time.Second; phase += 200 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			cfg := CoordinatorConfig{Listener: nowhere{}, WorldSize: 1, HostRank: -1, Times: Times{DeadAfter: 2 * time.Second}}
			cfg.setDefaults()
			c := newCoordinator(cfg)
			a, b := pipes()
			time.Sleep(phase)
			go c.seat(0, b, nil)
			a.send(message{Kind: kindJoin, Peer: -1, Addr: "nowhere:1"}, time.Second)
			for range 5 {
				time.Sleep(1900 * time.Millisecond)
				a.send(message{Kind: kindStatus, Peer: -1}, time.Second)
			}
			if err := c.Err(); err != nil {
				t.Errorf("phase %v: %v", phase, err)
			}
			start := time.Now()
			<-c.Lost()
			if took := time.Since(start); took < 2*time.Second || took > 3*time.Second {
				t.Errorf("phase %v: lost after %v", phase, took)
			}
			a.close()
			c.Close()
		})
	}
}

// A silent rank whose process uses processor time is given up to four times as long, and one that is stopped
// half of DeadAfter from then on.
func TestSilenceOfAProcessThatRuns(t *testing.T) {
	for _, c := range []struct {
		name  string
		runs  time.Duration // for how long
		after time.Duration // it is lost
	}{
		{"stopped", 0, 2 * time.Second},
		{"stopped soon", 900 * time.Millisecond, 2 * time.Second},
		{"runs, and is stopped", 3 * time.Second, 4 * time.Second},
		{"hangs in a loop", time.Hour, 8 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := CoordinatorConfig{Listener: nowhere{}, WorldSize: 1, HostRank: -1, Times: Times{DeadAfter: 2 * time.Second, Heartbeat: 100 * time.Millisecond}}
			cfg.setDefaults()
			co := newCoordinator(cfg)
			a, b := pipes()
			go co.seat(0, b, nil)
			a.send(message{Kind: kindJoin, Peer: -1, Addr: "nowhere:1"}, time.Second)
			start := time.Now()
			co.Process(0, func() time.Duration { return min(time.Since(start), c.runs) / 10 })
			<-co.Lost()
			if took := time.Since(start); took < c.after || took > c.after+2*cfg.Times.Heartbeat {
				t.Errorf("%s: lost after %v, want %v", c.name, took, c.after)
			}
			a.close()
			co.Close()
		})
	}
}

// TestEarlyLoss: in a job that goes on after a loss, a silent rank without processor time is lost
// within 5 s after regular heartbeats, later after irregular ones, and as before while its process
// runs. The time is from its last heartbeat.
func TestEarlyLoss(t *testing.T) {
	for _, c := range []struct {
		name        string
		early       bool
		beats       int           // heartbeats before the silence
		more        time.Duration // every third one is later by this
		runs        time.Duration // for how long the process runs in the silence
		above, upTo time.Duration // it is lost
	}{
		{"stopped", true, 20, 0, 0, 4 * time.Second, 5 * time.Second},
		{"stopped in a tick", true, 20, 0, 900 * time.Millisecond, 4 * time.Second, 5 * time.Second},
		{"no such job", false, 20, 0, 0, 10 * time.Second, 11 * time.Second},
		{"few heartbeats", true, 3, 0, 0, 10 * time.Second, 11 * time.Second},
		{"irregular", true, 20, 1200 * time.Millisecond, 0, 5800 * time.Millisecond, 7 * time.Second},
		{"very irregular", true, 20, 4 * time.Second, 0, 10 * time.Second, 11 * time.Second},
		{"runs, and is stopped", true, 20, 0, 7 * time.Second, 11 * time.Second, 13 * time.Second},
		{"hangs in a loop", true, 20, 0, time.Hour, 40 * time.Second, 41 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := CoordinatorConfig{Listener: nowhere{}, WorldSize: 1, HostRank: -1, Early: c.early}
			cfg.setDefaults()
			co := newCoordinator(cfg)
			a, b := pipes()
			start := time.Now().Add(time.Hour)
			co.Process(0, func() time.Duration { return max(0, min(time.Since(start), c.runs)) })
			time.Sleep(300 * time.Millisecond)
			go co.seat(0, b, nil)
			a.send(message{Kind: kindJoin, Peer: -1, Addr: "nowhere:1"}, time.Second)
			for i := range c.beats {
				time.Sleep(time.Second)
				if i%3 == 0 {
					time.Sleep(c.more)
				}
				a.send(message{Kind: kindStatus, Peer: -1}, time.Second)
			}
			synctest.Wait()
			start = time.Now()
			if err := co.Err(); err != nil {
				t.Fatalf("%s: %v before the silence", c.name, err)
			}
			<-co.Lost()
			if took := time.Since(start); took < c.above || took > c.upTo {
				t.Errorf("%s: lost after %v, want %v to %v", c.name, took, c.above, c.upTo)
			}
			a.close()
			co.Close()
		})
	}
}

// TestNoEarlyLossOnABusyHost: random heartbeats never make a loss, late by up to 1.9 s, or by up to
// 9 s while the process gets processor time.
func TestNoEarlyLossOnABusyHost(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		runs := random.IntN(2) == 0
		lateness := time.Duration(1+random.IntN(1900)) * time.Millisecond
		if runs {
			lateness = time.Duration(1+random.IntN(9000)) * time.Millisecond
		}
		now := time.Unix(0, 0)
		clock, s, r := pauseClock{beat: time.Second, last: now}, liveness.Detector{Limit: 10 * time.Second}, rhythm{}
		next, tick := now, now
		for range 2000 {
			if next.Before(tick) {
				now = next
				s.HeardAt(now, 0)
				r.heard(now)
				s.Early = r.early()
				next = now.Add(time.Second + time.Duration(random.Int64N(int64(lateness))))
				continue
			}
			now = tick
			if s.Pass(now, clock.tick(now), runs); s.Lost() {
				t.Fatalf("seed %d: lost after %v with heartbeats up to %v late; limit %v", seed, s.Lasts(), lateness, s.Early)
			}
			tick = now.Add(time.Second + time.Duration(random.Int64N(int64(lateness)/8+1)))
		}
	}
}
