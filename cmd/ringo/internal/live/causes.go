package live

import (
	"fmt"
	"slices"
)

// part is where a rank's step goes.
type part struct {
	doing string // of a straggler
	of    func(beat) float64
}

// parts are those by which one rank is slower than others. The exposed exchange is none, nor is waiting for servers: there ranks wait for
// others.
var parts = []part{
	{"computes", func(b beat) float64 { return float64(b.ComputeMS - b.DataWaitMS - b.PullWaitMS) }},
	{"waits for data", func(b beat) float64 { return float64(b.DataWaitMS) }},
	{"is in codecs", func(b beat) float64 { return float64(b.CompressMS) }},
	{"updates", func(b beat) float64 { return float64(b.UpdateMS) }},
}

// own is how long a rank's step takes of its own, without what it waits for others.
func own(b beat) (ms float64) {
	for _, p := range parts {
		ms += p.of(b)
	}
	return ms
}

const (
	recentBeats = 40 // ten seconds, or as many steps where these are longer than a beat
	leastBeats  = 8
	// conspicuous is by which share of the median rank's step another one's own time must be longer before it is named: ranks on shared
	// cores differ by a few percent all the time.
	conspicuous = 0.2
)

// straggler is a rank that holds up the others.
type straggler struct {
	rank int
	ms   float64 // by how much its own time is longer than the median
	text string
}

// stragglers finds the ranks whose steps take longer by themselves than the median rank's, and in which part. It is a pure function of
// means over the last seconds.
func stragglers(numbers []int, means []beat) (out []straggler) {
	if len(means) < 2 {
		return nil
	}
	median := func(of func(beat) float64, without int) float64 {
		var all []float64
		for i, b := range means {
			if i != without {
				all = append(all, of(b))
			}
		}
		slices.Sort(all)
		return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
	}
	step := func(b beat) float64 { return float64(b.StepMS) }
	for i, b := range means {
		more := own(b) - median(own, i)
		if !(more > conspicuous*median(step, i)) {
			continue
		}
		worst, by := 0, 0.
		for k, p := range parts {
			if d := p.of(b) - median(p.of, i); d > by {
				worst, by = k, d
			}
		}
		text := fmt.Sprintf("rank %d holds up the others: its step takes %.3g ms of its own more than theirs; it %s %.3g ms longer", numbers[i], more, parts[worst].doing, by)
		out = append(out, straggler{numbers[i], more, text})
	}
	slices.SortFunc(out, func(a, b straggler) int { return int(b.ms*1e3) - int(a.ms*1e3) })
	return out
}

// slowed are the ranks of the job that hold up others now.
func (h *Hub) slowed() []straggler {
	var numbers []int
	var means []beat
	for _, n := range h.sorted() {
		if r := h.ranks[n]; len(r.beats) >= leastBeats {
			numbers, means = append(numbers, n), append(means, r.recent(recentBeats))
		}
	}
	return stragglers(numbers, means)
}
