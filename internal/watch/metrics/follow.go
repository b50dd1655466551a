package metrics

import (
	"math/rand/v2"
	"time"

	"github.com/ringo-ml/ringo/internal/usage"
)

// Source has the functions for metrics that the rank does not count itself. nil means unknown.
type Source struct {
	// Sent returns bytes written to sockets, and Carried operand bytes through shared memory.
	Sent, Carried func() int64
	// Queued returns the number of operations in progress.
	Queued func() int
	// Summed returns the counters of an aggregation server.
	Summed func() AggregatorStats
	// Waiting returns the rank that an operation is waiting for.
	Waiting func() (peer int, ok bool)
	// LastHeartbeat returns the time of the coordinator's last message; zero means never.
	LastHeartbeat func() time.Time
}

// AggregatorStats are the counters of an aggregation server.
type AggregatorStats struct{ Exchanges, Received, Sent, Queued int64 }

// Intervals of the follower.
const (
	lookEvery  = 500 * time.Millisecond // mean interval of checking waits: waking an idle process takes some 0.3 ms of a core, and the check 0.2 us
	countEvery = time.Second            // counters of other packages
	usageEvery = 5 * time.Second        // values of the system
	longLook   = 2 * time.Second        // maximum time counted for one wait: in a longer interval the process was stopped
)

// Follow updates the metrics, in a goroutine, twice a second until stop is called.
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
			look.Reset(lookEvery/2 + rand.N(lookEvery)) // random, to avoid synchrony with the observed events
		}
	}
}

// look records the current wait, and calls usage and count when they are due.
func (w *follower) look(now time.Time) {
	if w.source.Waiting != nil {
		if peer, ok := w.source.Waiting(); ok && peer >= 0 && peer < w.figures.size {
			w.figures.Spent(w.figures.of(WaitTime, AggregatorWaitTime), peer, min(now.Sub(w.last), longLook))
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

// usage updates the system's values of the process.
func (w *follower) usage() {
	r := usage.Read()
	w.figures.Put(w.figures.of(Resident, AggregatorResident), 0, r.ResidentBytes)
	w.figures.Put(w.figures.of(CPUTime, AggregatorCPUTime), 0, int64(r.CPUSeconds*1e9))
}

func (f *RankMetrics) of(rank, server ID) ID {
	if f.role == OfAggregator {
		return server
	}
	return rank
}

// count updates the counters of other packages.
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
		for id, n := range map[ID]int64{AggregatorExchanges: s.Exchanges, AggregatorReceived: s.Received, AggregatorSent: s.Sent, AggregatorQueue: s.Queued} {
			w.figures.Put(id, 0, n)
		}
	}
	if w.source.LastHeartbeat != nil {
		if at := w.source.LastHeartbeat(); !at.IsZero() {
			w.figures.Put(LastHeartbeat, 0, at.UnixNano())
		}
	}
}
