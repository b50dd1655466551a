package steptrace

import (
	"cmp"
	"slices"
)

// Causes of waits.
const (
	LateRank = "late rank" // another rank began the exchange later
	Transfer = "exchange"  // the exchange itself was slow
	NoData   = "data"      // the next batch was not ready
)

// Wait is a period without computation because a rank waited. Times are in milliseconds.
type Wait struct {
	Rank    int     `json:"rank"`
	Step    int64   `json:"step"` // -1: unknown
	StartMS float64 `json:"start_ms"`
	WaitMS  float64 `json:"wait_ms"`
	// For is the awaited object: a bucket, or "data".
	For string `json:"for"`
	// Cause is LateRank, Transfer or NoData.
	Cause string `json:"cause"`
	// Algorithm and BytesSent describe an exchange; -1 means unknown.
	Algorithm string `json:"algorithm,omitempty"`
	BytesSent int64  `json:"bytes_sent"`
	// LateRank is the rank that began the exchange last, LateMS the delay after the begin of the
	// wait, and LateIn the main activity of the late rank in that time: the track and, for an
	// exchange, its object. -1 means that no rank was late.
	LateRank int     `json:"late_rank"`
	LateMS   float64 `json:"late_ms"`
	LateIn   string  `json:"late_in,omitempty"`
	LateInMS float64 `json:"late_in_ms"`
}

func (a *analysis) waits() []Wait {
	var longest []leg
	for rank, all := range a.pieces {
		for _, p := range all {
			if p.kind == kindExchange || p.kind == kindData {
				longest = append(longest, leg{rank, p})
			}
		}
	}
	slices.SortFunc(longest, func(x, y leg) int {
		return cmp.Or(cmp.Compare(y.end-y.start, x.end-x.start), cmp.Compare(x.start, y.start), cmp.Compare(x.rank, y.rank))
	})
	longest = longest[:min(shown, len(longest))]
	out := make([]Wait, 0, len(longest))
	for _, l := range longest {
		out = append(out, a.wait(l))
	}
	return out
}

func (a *analysis) wait(l leg) Wait {
	s := a.Ranks[l.rank].Spans[l.span]
	w := Wait{Rank: l.rank, Step: s.Step, StartMS: ms(l.start - a.lo), WaitMS: ms(l.end - l.start), For: a.Name(s), Cause: NoData, Algorithm: a.How(s), BytesSent: s.Bytes, LateRank: -1}
	if l.kind == kindData {
		return w
	}
	w.Cause = Transfer
	by, late := a.late(l.rank, l.piece)
	if !late {
		return w
	}
	w.LateRank, w.LateMS = by.rank, ms(by.start-l.start)
	w.LateIn, w.LateInMS = a.mostly(by.rank, l.start, by.start)
	// The reported cause is the longer part: the wait for the begin, or the transfer after it.
	if 2*(by.start-l.start) > l.end-l.start {
		w.Cause = LateRank
	}
	return w
}

// mostly returns a rank's main activity from lo to hi, and its duration.
func (a *analysis) mostly(rank int, lo, hi int64) (what string, long float64) {
	spent := map[string]int64{}
	all := a.pieces[rank]
	from, _ := slices.BinarySearchFunc(all, lo, func(p piece, t int64) int { return cmp.Compare(p.end, t) })
	for _, p := range all[from:] {
		if p.start >= hi {
			break
		}
		name := cmp.Or(a.track(rank, p), kindIdle.String())
		if p.kind == kindExchange {
			name += " of " + a.Name(a.Ranks[rank].Spans[p.span])
		}
		spent[name] += min(p.end, hi) - max(p.start, lo)
	}
	most := int64(-1) // the first by name among equals, for a result independent of map order
	for name, t := range spent {
		if t > most || t == most && name < what {
			what, most = name, t
		}
	}
	return what, ms(max(0, most))
}
