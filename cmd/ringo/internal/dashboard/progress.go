package dashboard

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/ringo-ml/ringo/internal/runlog"
)

// Progress is how far a job is, for who follows it from afar.
type Progress struct {
	// Known says that rank 0 has told of a run; all else is zero where it has not.
	Known bool
	// Share is how much of the job is done, of several seeds all of them, from 0 to 1.
	Share float64
	// TimeRemaining is about how long the rest takes at the rate of this run so far; below 0: that
	// is not known yet.
	TimeRemaining time.Duration
	// Figures are the newest finite numbers of its records, by their names there: those of steps, then of epochs what steps do not have.
	Figures []Figure
}

// origin is where and when a run began or went on, by which its rate is judged.
type origin struct {
	share float64
	at    time.Time
}

// Progress is how far the job is.
func (h *Collector) Progress() Progress {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.log.Runs()
	if len(all) == 0 {
		return Progress{}
	}
	run, share := all[len(all)-1], h.share()
	seeds := len(all)
	if run.Job != nil {
		n, _ := strconv.Atoi(run.Job.Settings["training.seeds"])
		seeds = max(seeds, n)
	}
	out := Progress{Known: true, Share: (float64(len(all)-1) + share) / float64(seeds), TimeRemaining: -1}
	if gone := share - h.origin.share; !h.origin.at.IsZero() && gone > 0 {
		rest := float64(seeds-len(all)) + 1 - share
		out.TimeRemaining = time.Duration(min(float64(h.moved.Sub(h.origin.at))*rest/gone, math.MaxInt64/2))
	}
	out.Figures = newestOf(run, h.now)
	return out
}

// share is how much of the run is done, whose records come.
func (h *Collector) share() float64 {
	if h.last().Ended {
		return 1
	}
	var at head
	h.at(&at, h.last().Info)
	return max(0, at.Share)
}

// advance takes how far rank 0 is.
func (h *Collector) advance(p progress) {
	if h.now, h.moved = p, h.clock(); h.origin.at.IsZero() {
		h.origin = origin{h.share(), h.moved}
	}
}

// newestOf are the newest numbers of a run, with where it is.
func newestOf(run *runlog.Run, now progress) (out []Figure) {
	add := func(name string, v float64) {
		known := slices.ContainsFunc(out, func(f Figure) bool { return f.Name == name })
		if finite(v) && !known {
			out = append(out, Figure{name, number(v), fmt.Sprint(v)})
		}
	}
	add("epoch", float64(now.Epoch))
	add("epochs", float64(max(now.Epochs, run.Info.Epochs)))
	g := runlog.RunSet{Runs: []*runlog.Run{run}}
	for _, of := range []func(*runlog.Run) *runlog.Table{runlog.OfSteps, runlog.OfEpochs} {
		for _, name := range of(run).Names() {
			add(name, g.Last(of, name).Mean)
		}
	}
	return out
}
