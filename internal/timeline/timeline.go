// Package timeline reads the timelines that `ringo train` writes with a file for its trace, and says what they show: where each
// rank's time went, how much of the exchanges computing hides, what the critical path over all ranks is made of, and what ranks waited
// for longest.
package timeline

import "github.com/ringo-ml/ringo/internal/watch/trace"

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

	names []string
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

// Kind is what a rank's time goes into.
type Kind uint8

// The kinds. Where several go on at once the first one counts: what is computed hides what is exchanged meanwhile.
const (
	Compute  Kind = iota // forward, backward, codecs, updates
	Data                 // waiting for the next batch
	Other                // evaluations and checkpoints
	Exchange             // waiting for gradients to be agreed, exposed
	Idle                 // nothing that is recorded
	kinds
)

// String returns the kind's name.
func (k Kind) String() string {
	return [...]string{"computation", "waiting for data", "evaluation and checkpoints", "exchange", "idle"}[k]
}

// kindOf is the kind of a track.
func kindOf(t trace.Track) Kind {
	switch t {
	case trace.Data:
		return Data
	case trace.Exchange:
		return Exchange
	case trace.Evaluation, trace.Checkpoint:
		return Other
	}
	return Compute
}
