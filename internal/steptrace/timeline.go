// Package steptrace analyses the steps of ranks. A step is spans by one clock, read from a trace
// file ([Read]) or from the memory of the ranks' recorders ([LastStep], a few hundred events of
// each rank, however long the job runs).
//
// Of a file [Summarise] shows where each rank's time went, how much of the exchanges computing
// hides, the critical path over all ranks and the longest waits, and [Compare] the difference
// between two. Of a running job [LastStep] shows which rank waits for which, and [FindCause] names
// what slows it, by the means that ranks report. All are pure functions.
package steptrace

import (
	"cmp"
	"slices"

	"github.com/ringo-ml/ringo/internal/watch/trace"
)

// What a timeline may hold, so that a file takes no more than about 400 MB of memory.
const (
	maxRanks = 1 << 12
	maxSpans = 1 << 23 // of all ranks: what 64 keep that record as many as they may without asking for more
	maxNames = 1 << 16 // different ones
	maxName  = 1 << 10 // bytes of one
)

// Timeline is what all ranks did, by one clock. Times are in nanoseconds from the first span on.
type Timeline struct {
	// Ranks are those of the job, in order.
	Ranks []Rank

	names  []string
	places map[string]uint32 // of names
}

// place returns the number of a name, which is stored once for all spans that have it.
func (t *Timeline) place(name string) uint32 {
	at, ok := t.places[name]
	if !ok {
		if t.places == nil {
			t.places = map[string]uint32{}
		}
		at = uint32(len(t.names))
		t.places[name] = at
		t.names = append(t.names, name)
	}
	return at
}

// Rank is what one rank has recorded.
type Rank struct {
	// ClockError is by how much the times may be wrong, at most.
	ClockError int64
	// LeftOut is how many later spans were not recorded.
	LeftOut int64
	// Spans are by their start.
	Spans []Span
}

// sort puts the spans in the order of their start.
func (r *Rank) sort() {
	slices.SortStableFunc(r.Spans, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
}

// Span is one thing that a rank did. Bytes and Step are -1 for what has none.
type Span struct {
	Start, End  int64
	Bytes, Step int64
	name, how   uint32 // places in the timeline's names
	Track       trace.Track
}

// Name is what a span was for, such as a bucket.
func (t *Timeline) Name(s Span) string { return t.names[s.name] }

// How is the algorithm of an exchange.
func (t *Timeline) How(s Span) string { return t.names[s.how] }

// tracks are all there are, in the order of their values.
var tracks = [...]trace.Track{
	trace.Data, trace.Forward, trace.Backward, trace.Compress, trace.Exchange, trace.Update, trace.Evaluation, trace.Checkpoint,
}

// spanKind is what a rank's time goes into.
type spanKind uint8

// The kinds. Where several go on at once the first one counts: what is computed hides what is exchanged meanwhile.
const (
	kindCompute  spanKind = iota // forward, backward, codecs, updates
	kindData                     // waiting for the next batch
	kindOther                    // evaluations and checkpoints
	kindExchange                 // waiting for gradients to be agreed, exposed
	kindIdle                     // nothing that is recorded
	kinds
)

// String returns the kind's name.
func (k spanKind) String() string {
	return [...]string{"computation", "waiting for data", "evaluation and checkpoints", "exchange", "idle"}[k]
}

// kindOf is the kind of a track.
func kindOf(t trace.Track) spanKind {
	switch t {
	case trace.Data:
		return kindData
	case trace.Exchange:
		return kindExchange
	case trace.Evaluation, trace.Checkpoint:
		return kindOther
	}
	return kindCompute
}
