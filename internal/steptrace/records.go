package steptrace

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// WholeStepEvents is the number of phases that include a step with up to 40 buckets.
const WholeStepEvents = 512

// Step is a rank's activity in a step, as a --json record.
type Step struct {
	Event string `json:"event"` // "timeline"
	Rank  int    `json:"rank"`
	// Done is the number of steps done, including this step.
	Done int64 `json:"done"`
	// Bars are sorted by start.
	Bars []Bar `json:"bars"`
}

// Bar is a period of a step, in ms from the first forward pass; earlier waits are negative.
type Bar struct {
	Phase string `json:"phase"` // "forward", "exchange" and so on, as in package record
	// Name is the object, such as a bucket, or "".
	Name    string  `json:"name,omitempty"`
	StartMS float64 `json:"start_ms"`
	EndMS   float64 `json:"end_ms"`
	Bytes   int64   `json:"bytes_sent,omitempty"` // bytes sent by this rank in an exchange
}

// steps returns a snapshot's complete steps by number, with events in the order of the ends.
func steps(s *record.Snapshot) map[int64][]record.Event {
	out := map[int64][]record.Event{}
	for lo, hi := 0, 0; lo < len(s.Phases); lo = hi {
		for hi = lo; hi < len(s.Phases) && s.Phases[hi].Step == s.Phases[lo].Step; hi++ {
		}
		begins := lo > 0 || uint64(len(s.Phases)) == s.PhasesEnded
		if step := s.Phases[lo].Step; begins && hi < len(s.Phases) && step >= 0 {
			out[step] = s.Phases[lo:hi]
		}
	}
	return out
}

// StepOf returns the last complete training step of a rank, or false.
func StepOf(rank int, s *record.Snapshot) (out Step, ok bool) {
	if s == nil {
		return out, false
	}
	last := int64(-1)
	all := steps(s)
	for step, events := range all {
		if step > last && slices.ContainsFunc(events, isForward) {
			last = step
		}
	}
	if last < 0 {
		return out, false
	}
	var t Timeline
	t.add(s, all[last])
	return t.step(rank, last), true
}

// add adds a rank with its recorded phases of a step, as spans in the common clock.
func (t *Timeline) add(s *record.Snapshot, events []record.Event) {
	var r Rank
	for _, e := range events {
		if e.Kind == record.PhaseKind {
			begun := s.Epoch.UnixNano() + e.Begun
			r.Spans = append(r.Spans, Span{Start: begun, End: begun + e.Done - e.Begun, Bytes: max(0, e.Sent), Step: e.Step, name: t.place(s.Text(e.Name)), Track: e.Phase})
		}
	}
	r.sort()
	t.Ranks = append(t.Ranks, r)
}

func (t *Timeline) step(rank int, number int64) Step {
	out := Step{Event: "timeline", Rank: rank, Done: number + 1}
	spans := t.Ranks[0].Spans
	zero := spans[slices.IndexFunc(spans, func(s Span) bool { return s.Track == record.Forward })].Start
	for _, s := range spans {
		if s.Track != record.Evaluation && s.Track != record.Checkpoint {
			out.Bars = append(out.Bars, Bar{Phase: s.Track.String(), Name: t.Name(s), StartMS: ms(s.Start - zero), EndMS: ms(s.End - zero), Bytes: s.Bytes})
		}
	}
	return out
}

func isForward(e record.Event) bool { return e.Kind == record.PhaseKind && e.Phase == record.Forward }

// RankWait is the time per step that a rank waited for another rank, excluding time hidden by
// computation. A wait of a rank for itself is the time of exchanges that all ranks had begun.
type RankWait struct {
	Rank, For int
	MS        float64
}

// Last is the last common step of the ranks.
type Last struct {
	Done  int64
	Waits []RankWait
	// Exchanges are the exchanges of all ranks.
	Exchanges []ExchangeTime
}

// LastStep returns the last step that all ranks have ended, from their snapshots by rank; nil marks
// an unknown rank. ok is false without a step of two ranks with exchanges.
//
// A rank without computation waits for the first exchange in progress to end, and until all ranks
// have begun that exchange, for the last rank to begin.
//
// Cost: linear in the events, plus the number of ranks per bucket and rank.
func LastStep(of []*record.Snapshot) (out Last, ok bool) {
	whole := make([]map[int64][]record.Event, len(of))
	known := 0
	count := map[int64]int{}
	for rank, s := range of {
		if s == nil {
			continue
		}
		known++
		whole[rank] = steps(s)
		for step := range whole[rank] {
			count[step]++
		}
	}
	out.Done = -1
	for step, n := range count {
		if n == known {
			out.Done = max(out.Done, step)
		}
	}
	if known < 2 || out.Done < 0 {
		return Last{}, false
	}
	a := &analysis{Timeline: new(Timeline)}
	for rank, s := range of {
		if s == nil {
			a.Ranks = append(a.Ranks, Rank{})
			continue
		}
		a.add(s, whole[rank][out.Done])
	}
	a.match()
	for rank := range of {
		order := a.order(rank)
		out.Waits = append(out.Waits, a.rankWaits(rank, order)...)
		out.Exchanges = append(out.Exchanges, a.exchangeTimes(rank, order)...)
	}
	return out, len(out.Exchanges) > 0
}

// order returns the indexes of a rank's exchanges among its spans, by end.
func (a *analysis) order(rank int) []int {
	spans := a.Ranks[rank].Spans
	return slices.SortedFunc(maps.Keys(a.keys[rank]), func(i, j int) int {
		return cmp.Or(cmp.Compare(spans[i].End, spans[j].End), cmp.Compare(a.Name(spans[i]), a.Name(spans[j])), cmp.Compare(i, j))
	})
}

func (a *analysis) exchangeTimes(rank int, order []int) (out []ExchangeTime) {
	before := int64(0)
	for _, i := range order {
		s := a.Ranks[rank].Spans[i]
		out = append(out, ExchangeTime{Bytes: float64(s.Bytes), MS: ms(max(0, s.End-max(before, a.starts[a.keys[rank][i]].start)))})
		before = s.End
	}
	return out
}

func (a *analysis) rankWaits(rank int, order []int) (out []RankWait) {
	spans := a.Ranks[rank].Spans
	spent := map[int]int64{}
	for _, wait := range spans {
		if wait.Track != record.Exposed {
			continue
		}
		now := wait.Start
		for _, i := range order {
			end := min(spans[i].End, wait.End)
			if end <= now {
				continue
			}
			if by := a.starts[a.keys[rank][i]]; by.rank != rank && by.start > now {
				until := min(by.start, end)
				spent[by.rank] += until - now
				now = until
			}
			spent[rank] += end - now
			now = end
		}
		spent[rank] += max(0, wait.End-now)
	}
	for _, by := range slices.Sorted(maps.Keys(spent)) {
		if spent[by] > 0 {
			out = append(out, RankWait{Rank: rank, For: by, MS: ms(spent[by])})
		}
	}
	return out
}
