package collective

import (
	"cmp"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// What a group tells those who watch it from outside: whom its operations wait for, and
// what has been started.

// Wait is a wait of an operation for a peer.
type Wait struct {
	Op    string    // the operation: "allreduce"
	Seq   uint32    // which one of the group, from 0; of a Send or Receive, of those to or from Peer
	Peer  int       // whom it waits for, as the mesh numbers it
	Since time.Time // since when
}

// Waiting returns the longest wait of this rank. ok is false while it waits for
// nobody, or not for SlowAfter yet. It may be called at any time from any
// goroutine.
func (g *Group) Waiting() (longest Wait, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	look := func(w *Work) {
		p, since := w.waits.Load()
		start := g.scribe.rec.Time(since)
		if p >= 0 && (!ok || start.Before(longest.Since)) {
			longest, ok = Wait{Op: w.kind.String(), Seq: w.seq, Peer: p, Since: start}, true
		}
	}
	for i := range g.window.slots {
		if w := g.window.slots[i].work; w != nil {
			look(w)
		}
	}
	for _, w := range g.activeP2P {
		look(w)
	}
	for _, b := range g.dups {
		if w, waits := b.Waiting(); waits && (!ok || w.Since.Before(longest.Since)) {
			longest, ok = w, true
		}
	}
	if ok && time.Since(longest.Since) < g.cfg.SlowAfter {
		return Wait{}, false
	}
	return longest, ok
}

// begun is how many operations Begun returns.
const begun = 16

// Begun is an operation that this rank has started.
type Begun struct {
	Seq       uint32 // which one of the group, from 0
	Operation string // in words that are the same on all ranks that start the same
}

// Begun returns the last operations that were started, at most 16, oldest first: a reader of the group's recorder.
// Ranks that wait for each other compare them. It may be called at any time from
// any goroutine.
func (g *Group) Begun() []Begun {
	rec := g.scribe.rec
	events := rec.Open(nil) // first: what ends meanwhile is then seen twice, and not missed
	events = rec.Recent(events, lookBack)
	events = slices.DeleteFunc(events, func(e record.Event) bool { return e.Kind != record.Operation || e.Group != g.cfg.ID })
	if len(events) == 0 {
		return nil
	}
	newest := events[0].Seq
	for _, e := range events {
		if int32(e.Seq-newest) > 0 { // numbers wrap around
			newest = e.Seq
		}
	}
	slices.SortFunc(events, func(a, b record.Event) int { return cmp.Compare(int32(a.Seq-newest), int32(b.Seq-newest)) })
	events = slices.CompactFunc(events, func(a, b record.Event) bool { return a.Seq == b.Seq })
	var out []Begun
	for _, e := range events[max(0, len(events)-begun):] {
		out = append(out, Begun{Seq: e.Seq, Operation: signature(e.Sig).String()})
	}
	return out
}

// lookBack is among how many operations of all groups Begun looks for those of its group.
const lookBack = 256
