package metrics

import (
	"math/rand/v2"
	"time"

	"github.com/ringo-ml/ringo/internal/usage"
)

// Source is where a rank's figures come from besides what it counts itself. What is nil is not known.
type Source struct {
	// Sent is how many bytes were written to sockets so far, and Carried how many bytes of operands shared memory has carried.
	Sent, Carried func() int64
	// Queued is how many operations have begun and not ended.
	Queued func() int
	// Summed is what a server that sums has done so far: its counters.
	Summed func() AggregatorStats
	// Waiting says for which rank an operation waits right now.
	Waiting func() (peer int, ok bool)
	// LastHeartbeat is when the coordinator was last heard of; zero: never.
	LastHeartbeat func() time.Time
}

// AggregatorStats is what a server that sums has done.
type AggregatorStats struct{ Exchanges, Received, Sent, Queued int64 }

// How often the follower looks.
const (
	lookEvery  = 500 * time.Millisecond // at waits, in the mean: to wake an idle process takes some 0.3 ms of a core, and to look 0.2 us
	countEvery = time.Second            // at what others count
	usageEvery = 5 * time.Second        // at what the system says
	longLook   = 2 * time.Second        // a wait is counted for no more: the process was stopped meanwhile
)

// Follow keeps the figures up to date, on a goroutine of its own, until stop is called. It wakes up
// twice a second.
func (f *RankMetrics) Follow(s Source) (stop func()) {
	if f == nil {
		return func() {}
	}
	w := &follower{figures: f, source: s, last: time.Now()}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		w.run(end)
	}()
	return func() { close(end); <-ended }
}

// follower brings figures up to date.
type follower struct {
	figures *RankMetrics
	source  Source

	last, counted, used time.Time
}

func (w *follower) run(end <-chan struct{}) {
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		select {
		case <-end:
			w.count(time.Now())
			w.usage()
			return
		case <-look.C:
			w.look(time.Now())
			look.Reset(lookEvery/2 + rand.N(lookEvery)) // not in step with what is looked at
		}
	}
}

// look sees for whom the rank waits, and whether it is time for more.
func (w *follower) look(now time.Time) {
	if w.source.Waiting != nil {
		if peer, ok := w.source.Waiting(); ok && peer >= 0 && peer < w.figures.size {
			w.figures.Spent(w.figures.of(WaitTime, SumWaitTime), peer, min(now.Sub(w.last), longLook))
		}
	}
	w.last = now
	if now.Sub(w.counted) >= countEvery {
		w.count(now)
	}
	if now.Sub(w.used) >= usageEvery {
		w.used = now
		w.usage()
	}
}

// usage asks the system what the process takes.
func (w *follower) usage() {
	r := usage.Read()
	w.figures.Put(w.figures.of(Resident, SumResident), 0, r.ResidentBytes)
	w.figures.Put(w.figures.of(CPUTime, SumCPUTime), 0, int64(r.CPUSeconds*1e9))
}

// of is the row of a rank, or that of a server.
func (f *RankMetrics) of(rank, server ID) ID {
	if f.role == OfAggregator {
		return server
	}
	return rank
}

// count asks others for what they count.
func (w *follower) count(now time.Time) {
	w.counted = now
	if w.source.Sent != nil {
		w.figures.Put(SentBytes, TCP, w.source.Sent())
	}
	if w.source.Carried != nil {
		w.figures.Put(SentBytes, SHM, w.source.Carried())
	}
	if w.source.Queued != nil {
		w.figures.Put(Queue, OperationQueue, int64(w.source.Queued()))
	}
	if w.source.Summed != nil {
		s := w.source.Summed()
		for id, n := range map[ID]int64{SumExchanges: s.Exchanges, SumReceived: s.Received, SumSent: s.Sent, SumQueue: s.Queued} {
			w.figures.Put(id, 0, n)
		}
	}
	if w.source.LastHeartbeat != nil {
		if at := w.source.LastHeartbeat(); !at.IsZero() {
			w.figures.Put(LastHeartbeat, 0, at.UnixNano())
		}
	}
}
