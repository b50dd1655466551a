// Package steptrace analyses the steps of ranks. A step is a set of spans in a common clock, from a
// trace file ([Read]) or from the memory of the ranks' recorders ([LastStep], a few hundred events
// per rank, independent of the job's duration).
//
// For a file [Summarise] returns the use of each rank's time, the share of exchanges hidden by
// computation, the critical path over all ranks and the longest waits, and [Compare] the difference
// between two files. For a running job [LastStep] returns the ranks' waits for each other, and
// [FindCause] the main cause of slowness, from the ranks' mean times. All are pure functions.
package steptrace

import (
	"cmp"
	"slices"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// Limits of a timeline: a file uses at most about 400 MB of memory.
const (
	maxRanks = 1 << 12
	maxSpans = 1 << 23 // total of 64 ranks with the default maximum of spans each
	maxNames = 1 << 16 // distinct names
	maxName  = 1 << 10 // bytes of a name
)

// Timeline is the spans of all ranks in a common clock. Times are in nanoseconds from the first
// span.
type Timeline struct {
	// Ranks are the ranks of the job, in order.
	Ranks []Rank

	names  []string
	places map[string]uint32 // index of each name
}

// place returns the index of a name, stored once for all spans.
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

// Rank is the spans of a rank.
type Rank struct {
	// ClockError is the maximum error of the times.
	ClockError int64
	// LeftOut is the number of later spans that were dropped.
	LeftOut int64
	// Spans are sorted by start.
	Spans []Span
}

func (r *Rank) sort() {
	slices.SortStableFunc(r.Spans, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
}

// Span is an activity of a rank. Bytes and Step are -1 if not applicable.
type Span struct {
	Start, End  int64
	Bytes, Step int64
	name, how   uint32 // indexes into the timeline's names
	Track       record.Phase
}

// Name returns the object of a span, such as a bucket.
func (t *Timeline) Name(s Span) string { return t.names[s.name] }

// How returns the algorithm of an exchange.
func (t *Timeline) How(s Span) string { return t.names[s.how] }

// tracks are all tracks, in the order of their values.
var tracks = [...]record.Phase{
	record.Data, record.Forward, record.Backward, record.Compress, record.Exchange, record.Update, record.Evaluation, record.Checkpoint,
}

// spanKind is a use of a rank's time.
type spanKind uint8

// Values of spanKind. The first of simultaneous kinds counts: computation hides exchanges.
const (
	kindCompute  spanKind = iota // forward, backward, codecs, updates
	kindData                     // waiting for the next batch
	kindOther                    // evaluations and checkpoints
	kindExchange                 // waiting for the agreement on gradients, exposed
	kindIdle                     // no recorded activity
	kinds
)

// String returns the kind's name.
func (k spanKind) String() string {
	return [...]string{"computation", "waiting for data", "evaluation and checkpoints", "exchange", "idle"}[k]
}

func kindOf(t record.Phase) spanKind {
	switch t {
	case record.Data:
		return kindData
	case record.Exchange:
		return kindExchange
	case record.Evaluation, record.Checkpoint:
		return kindOther
	}
	return kindCompute
}
