// Package glimpse sees in what ranks have recorded (package record) what their last whole step was like: where its buckets were on one
// rank, and who waited for whom. It reads a few hundred events of each rank, however long the job runs.
package glimpse

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// Enough is how many phases hold a whole step of most jobs: one of 40 buckets. Ranks that have more are looked at by more.
const Enough = 512

// Step is what a rank did in a step, as a record of --json.
type Step struct {
	Event string `json:"event"` // "timeline"
	Rank  int    `json:"rank"`
	// Done is how many steps of the run were done with it.
	Done int64 `json:"done"`
	// Bars are by their start.
	Bars []Bar `json:"bars"`
}

// Bar is a time of a step, in ms from the start of its first forward pass on. What waits for data before that is below 0.
type Bar struct {
	Phase string `json:"phase"` // "forward", "exchange" and so on, as package record calls them
	// Name says of what it is, such as a bucket; "": of all.
	Name    string  `json:"name,omitempty"`
	StartMS float64 `json:"start_ms"`
	EndMS   float64 `json:"end_ms"`
	Bytes   int64   `json:"bytes_sent,omitempty"` // of an exchange, by this rank
}

// Wait is for how long a rank waited for another one in a step, beyond what computing hid. For itself it waited while exchanges went on
// that all ranks had begun.
type Wait struct {
	Rank, For int
	MS        float64
}

// steps are the whole steps of a snapshot, by their number: of each its events, in the order in which they ended.
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
	events := all[last]
	zero := int64(-1)
	for _, e := range events {
		if isForward(e) && (zero < 0 || e.Begun < zero) {
			zero = e.Begun
		}
	}
	out = Step{Event: "timeline", Rank: rank, Done: last + 1}
	for _, e := range events {
		if e.Kind != record.PhaseKind || e.Phase == record.Evaluation || e.Phase == record.Checkpoint {
			continue
		}
		out.Bars = append(out.Bars, Bar{Phase: e.Phase.String(), Name: s.Text(e.Name), StartMS: ms(e.Begun - zero), EndMS: ms(e.Done - zero), Bytes: max(0, e.Sent)})
	}
	slices.SortStableFunc(out.Bars, func(a, b Bar) int { return cmp.Compare(a.StartMS, b.StartMS) })
	return out, true
}

func isForward(e record.Event) bool { return e.Kind == record.PhaseKind && e.Phase == record.Forward }

// exchange is that of a bucket on a rank, by a clock that all ranks have.
type exchange struct{ begun, done, sent int64 }

// seen is what one rank did in a step.
type seen struct {
	exchanges map[string]exchange // by the bucket's name
	exposed   []exchange
}

// Waits are those of the last step that all ranks have ended, of which of holds the snapshots by rank: nil where that of a rank is not
// known. ok is false where no step is known of two ranks that exchanged something.
//
// While a rank has nothing to compute it waits for the exchange under way that ends first. Until another rank has begun that one, too,
// the wait is for the last to begin.
//
// The cost is that of the events, and for each bucket of a rank the number of ranks.
func Waits(of []*record.Snapshot) (done int64, out []Wait, ok bool) {
	done, all, ok := together(of)
	last := latest(all)
	for rank := range all {
		out = append(out, all[rank].waits(rank, last)...)
	}
	return done, out, ok
}

// Exchanged is the exchange of a bucket on a rank, from when all ranks had begun it, and those that ended before it had ended, until it had.
type Exchanged struct {
	Rank  int
	Bytes int64 // that the rank has sent, 0 in shared memory
	MS    float64
}

// Exchanges are those of the step of which Waits tells, of all ranks.
func Exchanges(of []*record.Snapshot) (out []Exchanged) {
	_, all, ok := together(of)
	if !ok {
		return nil
	}
	last := latest(all)
	for rank, s := range all {
		before := int64(0)
		for _, name := range s.order() {
			x := s.exchanges[name]
			out = append(out, Exchanged{Rank: rank, Bytes: x.sent, MS: ms(max(0, x.done-max(before, last[name].last)))})
			before = x.done
		}
	}
	return out
}

// together is what ranks did in the last step that all of them have ended, and how many steps were done with it. ok is false where no step is
// known of two ranks that exchanged something.
func together(of []*record.Snapshot) (done int64, all []seen, ok bool) {
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
	done = -1
	for step, n := range count {
		if n == known && step > done {
			done = step
		}
	}
	if known < 2 || done < 0 {
		return 0, nil, false
	}
	all = make([]seen, len(of))
	for rank, s := range of {
		if s != nil {
			all[rank] = see(s, whole[rank][done])
			ok = ok || len(all[rank].exchanges) > 0
		}
	}
	return done, all, ok
}

// see reads the events of a rank's step.
func see(s *record.Snapshot, events []record.Event) seen {
	out := seen{exchanges: map[string]exchange{}}
	epoch := s.Epoch.UnixNano()
	for _, e := range events {
		if e.Kind != record.PhaseKind {
			continue
		}
		x := exchange{epoch + e.Begun, epoch + e.Done, max(0, e.Sent)}
		switch e.Phase {
		case record.Exchange:
			out.exchanges[s.Text(e.Name)] = x
		case record.Exposed:
			out.exposed = append(out.exposed, x)
		}
	}
	return out
}

// begun is who began an exchange last, and when.
type begun struct {
	rank int
	last int64
}

// latest finds them for each bucket.
func latest(all []seen) map[string]begun {
	out := map[string]begun{}
	for rank, s := range all {
		for name, x := range s.exchanges {
			if b, known := out[name]; !known || x.begun > b.last {
				out[name] = begun{rank, x.begun}
			}
		}
	}
	return out
}

// order are the names of its exchanges, in the order in which they ended.
func (s seen) order() []string {
	return slices.SortedFunc(maps.Keys(s.exchanges), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.exchanges[a].done, s.exchanges[b].done), cmp.Compare(a, b))
	})
}

// waits are those of one rank.
func (s seen) waits(rank int, last map[string]begun) (out []Wait) {
	names := s.order()
	spent := map[int]int64{}
	for _, wait := range s.exposed {
		now := wait.begun
		for _, name := range names {
			end := min(s.exchanges[name].done, wait.done)
			if end <= now {
				continue
			}
			if by := last[name]; by.rank != rank && by.last > now {
				until := min(by.last, end)
				spent[by.rank] += until - now
				now = until
			}
			spent[rank] += end - now
			now = end
		}
		spent[rank] += max(0, wait.done-now)
	}
	for by, t := range spent {
		if t > 0 {
			out = append(out, Wait{Rank: rank, For: by, MS: ms(t)})
		}
	}
	slices.SortFunc(out, func(a, b Wait) int { return cmp.Compare(a.For, b.For) })
	return out
}

func ms(ns int64) float64 { return float64(ns) / 1e6 }
