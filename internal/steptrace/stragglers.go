package steptrace

import (
	"cmp"
	"fmt"
	"slices"
)

type part struct {
	doing string // verb for a straggler
	of    func(RankTimes) float64
}

// parts are the parts that make a rank slower than the rest. Exposed exchange and waits for servers
// are excluded: there a rank waits for other ranks.
var parts = []part{
	{"computes", func(r RankTimes) float64 { return r.ComputeMS }},
	{"waits for data", func(r RankTimes) float64 { return r.DataMS }},
	{"is in codecs", func(r RankTimes) float64 { return r.CompressMS }},
	{"updates", func(r RankTimes) float64 { return r.UpdateMS }},
}

// OwnMS returns the rank's time per step, without waits for other ranks.
func (r RankTimes) OwnMS() (ms float64) {
	for _, p := range parts {
		ms += p.of(r)
	}
	return ms
}

// Straggler is a rank that delays the other ranks.
type Straggler struct {
	Rank int
	MS   float64 // excess over the median of the other ranks
	Text string

	at int // index among the ranks
}

// Stragglers returns the ranks with an own time above the median of the other ranks by more than a
// fifth of a step, worst first. Cost: O(n log n).
func Stragglers(ranks []RankTimes) (out []Straggler) {
	if len(ranks) < 2 {
		return nil
	}
	own, step := columnOf(ranks, RankTimes.OwnMS), columnOf(ranks, func(r RankTimes) float64 { return r.StepMS })
	var columns []column // columns of the parts, computed on first use
	for i, r := range ranks {
		more := own.of[i] - own.without(i)
		if !(more > conspicuous*step.without(i)) {
			continue
		}
		for k := len(columns); k < len(parts); k++ {
			columns = append(columns, columnOf(ranks, parts[k].of))
		}
		worst, by := 0, 0.
		for k, c := range columns {
			if d := c.of[i] - c.without(i); d > by {
				worst, by = k, d
			}
		}
		text := fmt.Sprintf("rank %d holds up the others: its step takes %s ms of its own more than theirs; it %s %s ms longer", r.Number, millis(more), parts[worst].doing, millis(by))
		out = append(out, Straggler{r.Number, more, text, i})
	}
	slices.SortStableFunc(out, func(a, b Straggler) int { return cmp.Compare(b.MS, a.MS) })
	return out
}
