package steptrace

import (
	"cmp"
	"fmt"
	"slices"
)

// part is where a rank's step goes.
type part struct {
	doing string // of a straggler
	of    func(RankTimes) float64
}

// parts are those by which one rank is slower than others. The exposed exchange is none, nor is waiting for servers: there ranks wait for
// others.
var parts = []part{
	{"computes", func(r RankTimes) float64 { return r.ComputeMS }},
	{"waits for data", func(r RankTimes) float64 { return r.DataMS }},
	{"is in codecs", func(r RankTimes) float64 { return r.CompressMS }},
	{"updates", func(r RankTimes) float64 { return r.UpdateMS }},
}

// OwnMS is how long a rank's step takes of its own, without what it waits for others.
func (r RankTimes) OwnMS() (ms float64) {
	for _, p := range parts {
		ms += p.of(r)
	}
	return ms
}

// Straggler is a rank that holds up the others.
type Straggler struct {
	Rank int
	MS   float64 // by how much its own time is longer than the median of the others'
	Text string

	at int // among the ranks
}

// Stragglers are the ranks whose steps take longer by themselves than the median of the others, by more than a fifth of a step, the
// worst first. It takes n log n.
func Stragglers(ranks []RankTimes) (out []Straggler) {
	if len(ranks) < 2 {
		return nil
	}
	own, step := columnOf(ranks, RankTimes.OwnMS), columnOf(ranks, func(r RankTimes) float64 { return r.StepMS })
	var columns []column // of the parts, once one is needed
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
