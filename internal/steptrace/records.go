package steptrace

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// WholeStepEvents is the number of phases that hold a whole step of most jobs: one of 40 buckets.
const WholeStepEvents = 512

// Step is what a rank did in a step, as a record of --json.
type Step struct {
	Event string `json:"event"` // "timeline"
	Rank  int    `json:"rank"`
	// Done is how many steps of the run were done with it.
	Done int64 `json:"done"`
	// Bars are by their start.
	Bars []Bar `json:"bars"`
}

// Bar is a time of a step, in ms from the start of its first forward pass on. What waits for data
// before that is below 0.
type Bar struct {
	Phase string `json:"phase"` // "forward", "exchange" and so on, as package record calls them
	// Name says of what it is, such as a bucket; "": of all.
	Name    string  `json:"name,omitempty"`
	StartMS float64 `json:"start_ms"`
	EndMS   float64 `json:"end_ms"`
	Bytes   int64   `json:"bytes_sent,omitempty"` // of an exchange, by this rank
}

// steps are the whole steps of a snapshot, by their number: of each its events, in the order in
// which they ended.
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

// StepOf is the last whole step of a rank; false where there is none that was trained.
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

// add adds a rank with the phases of a step that it has recorded, as spans by the clock of all
// ranks.
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

// step returns the only rank's step.
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

// RankWait is the time that a rank waited for another one in a step, beyond what computing hid. For
// itself it waited while exchanges continued that all ranks had begun.
type RankWait struct {
	Rank, For int
	MS        float64
}

// Last is a step that ranks have ended.
type Last struct {
	Done  int64
	Waits []RankWait
	// Exchanges are those of all ranks.
	Exchanges []ExchangeTime
}

// LastStep returns the last step that all ranks have ended, from their snapshots by rank: nil where
// that of a rank is not known. ok is false without a step of two ranks that exchanged something.
//
// While a rank has nothing to compute it waits for the exchange in progress that ends first. Until
// another rank has begun that one, too, the wait is for the last to begin.
//
// The cost is that of the events, and for each bucket of a rank the number of ranks.
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

// order are the places of a rank's exchanges among its spans, by their end.
func (a *analysis) order(rank int) []int {
	spans := a.Ranks[rank].Spans
	return slices.SortedFunc(maps.Keys(a.keys[rank]), func(i, j int) int {
		return cmp.Or(cmp.Compare(spans[i].End, spans[j].End), cmp.Compare(a.Name(spans[i]), a.Name(spans[j])), cmp.Compare(i, j))
	})
}

// exchangeTimes are those of a rank.
func (a *analysis) exchangeTimes(rank int, order []int) (out []ExchangeTime) {
	before := int64(0)
	for _, i := range order {
		s := a.Ranks[rank].Spans[i]
		out = append(out, ExchangeTime{Bytes: float64(s.Bytes), MS: ms(max(0, s.End-max(before, a.starts[a.keys[rank][i]].start)))})
		before = s.End
	}
	return out
}

// rankWaits are those of a rank, by the rank that it waited for.
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
