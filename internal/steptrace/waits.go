package steptrace

import (
	"cmp"
	"slices"
)

// The causes of waits.
const (
	LateRank = "late rank" // another rank has begun the exchange later
	Transfer = "exchange"  // the exchange itself took so long
	NoData   = "data"      // the next batch was not there
)

// Wait is a time in which a rank computed nothing because something had not come. Times are in milliseconds.
type Wait struct {
	Rank    int     `json:"rank"`
	Step    int64   `json:"step"` // -1 where it is not known
	StartMS float64 `json:"start_ms"`
	WaitMS  float64 `json:"wait_ms"`
	// For is what was waited for: a bucket, or "data".
	For string `json:"for"`
	// Cause is LateRank, Transfer or NoData.
	Cause string `json:"cause"`
	// Algorithm and BytesSent are of an exchange; -1: not known.
	Algorithm string `json:"algorithm,omitempty"`
	BytesSent int64  `json:"bytes_sent"`
	// LateRank is who has begun the exchange last, LateMS after the wait began, and LateIn what it did most of that time: the track and,
	// for an exchange, what that was for. -1: nobody was late.
	LateRank int     `json:"late_rank"`
	LateMS   float64 `json:"late_ms"`
	LateIn   string  `json:"late_in,omitempty"`
	LateInMS float64 `json:"late_in_ms"`
}

// waits are the longest of all ranks.
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

// wait tells of one.
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
	// What is told first is what would have helped more: an earlier start, or a faster exchange.
	if 2*(by.start-l.start) > l.end-l.start {
		w.Cause = LateRank
	}
	return w
}

// mostly is what a rank did for most of the time from lo until hi, and for how long.
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
	most := int64(-1) // of equal ones the first by name, whatever the order of the map
	for name, t := range spent {
		if t > most || t == most && name < what {
			what, most = name, t
		}
	}
	return what, ms(max(0, most))
}
