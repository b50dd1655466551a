package collective

import (
	"cmp"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// Reports of a group for monitoring: waits of its operations for ranks, and started operations.

// Wait is a wait of an operation for a peer.
type Wait struct {
	Op    string    // name of the operation: "allreduce"
	Seq   uint32    // number of the operation in the group, from 0; a Send or Receive counts per peer and direction
	Peer  int       // awaited rank, by its number in the mesh
	Since time.Time // start of the wait
}

// Waiting returns the longest current wait of this rank. ok is false if no operation waits for at
// least SlowAfter. Any goroutine may call Waiting at any time.
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

// begun is the maximum number of operations in the result of Begun.
const begun = 16

// Begun is an operation that this rank has started.
type Begun struct {
	Seq       uint32 // number of the operation in the group, from 0
	Operation string // description, equal on all ranks for equal operations
}

// Begun returns the last operations started, at most 16, oldest first, from the group's recorder.
// Ranks that wait for each other compare the results. Any goroutine may call Begun at any time.
func (g *Group) Begun() []Begun {
	rec := g.scribe.rec
	events := rec.Open(nil) // before Recent: an operation that ends between the calls is found twice, not missed
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

// lookBack is the number of latest operations in the recorder, of all groups, that Begun searches.
const lookBack = 256
