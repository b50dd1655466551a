package metrics

import (
	"math/rand/v2"
	"time"

	"github.com/ringo-ml/ringo/internal/usage"
)

// Source is where a rank's figures come from besides what it counts itself. What is nil is not known.
type Source struct {
	// Sent is how many bytes were written to sockets so far.
	Sent func() int64
	// Waiting says for which rank an operation waits right now.
	Waiting func() (peer int, ok bool)
	// Heard is when the coordinator was last heard of; zero: never.
	Heard func() time.Time
}

// How often the follower looks.
const (
	lookEvery  = 500 * time.Millisecond // at waits, in the mean: to wake an idle process takes some 0.3 ms of a core, and to look 0.2 us
	countEvery = time.Second            // at what others count
	usageEvery = 5 * time.Second        // at what the system says
	longLook   = 2 * time.Second        // a wait is counted for no more: the process was stopped meanwhile
)

// Follow keeps the figures up to date, on a goroutine of its own, until stop is called. It wakes up
// twice a second.
func (f *Figures) Follow(s Source) (stop func()) {
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
	figures *Figures
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
			w.figures.Spent(WaitTime, peer, min(now.Sub(w.last), longLook))
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
	w.figures.Put(Resident, 0, r.ResidentBytes)
	w.figures.Put(CPUTime, 0, int64(r.CPUSeconds*1e9))
}

// count asks others for what they count.
func (w *follower) count(now time.Time) {
	w.counted = now
	if w.source.Sent != nil {
		w.figures.Put(SentBytes, TCP, w.source.Sent())
	}
	if w.source.Heard != nil {
		if at := w.source.Heard(); !at.IsZero() {
			w.figures.Put(LastHeartbeat, 0, at.UnixNano())
		}
	}
}
