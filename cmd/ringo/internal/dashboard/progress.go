package dashboard

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/ringo-ml/ringo/internal/runlog"
)

// Progress is a job's progress, for external schedulers.
type Progress struct {
	// Known reports whether rank 0 has reported a run; otherwise all fields are zero.
	Known bool
	// Share is the share of the job done, over all seeds, from 0 to 1.
	Share float64
	// TimeRemaining is estimated from the run's rate until now; negative means unknown.
	TimeRemaining time.Duration
	// Figures are the newest finite values by name, from step records or else from epoch records.
	Figures []Figure
}

// origin is the position and time at which a run began or resumed, the base of its rate.
type origin struct {
	share float64
	at    time.Time
}

// Progress returns the job's progress.
func (h *Collector) Progress() Progress {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.log.Runs()
	if len(all) == 0 {
		return Progress{}
	}
	share := h.share()
	return Progress{
		Known: true, Share: (float64(len(all)-1) + share) / float64(h.expected()), TimeRemaining: h.remaining(share),
		Figures: newestOf(all[len(all)-1], h.now),
	}
}

// expected returns the number of runs of the job: one for each seed or fold.
func (h *Collector) expected() int {
	all := h.log.Runs()
	runs := len(all)
	if job := all[runs-1].Job; job != nil {
		for _, path := range []string{"training.seeds", "training.folds"} {
			n, _ := strconv.Atoi(job.Settings[path])
			runs = max(runs, n)
		}
	}
	return runs
}

// remaining estimates the time to the end of all runs, from the share of the last one; negative
// means unknown.
func (h *Collector) remaining(share float64) time.Duration {
	gone := share - h.origin.share
	if h.origin.at.IsZero() || gone <= 0 {
		return -1
	}
	rest := float64(h.expected()-len(h.log.Runs())) + 1 - share
	return time.Duration(min(float64(h.moved.Sub(h.origin.at))*rest/gone, math.MaxInt64/2))
}

func (h *Collector) share() float64 {
	if h.last().Ended {
		return 1
	}
	var at head
	h.at(&at, h.last().Info)
	return max(0, at.Share)
}

func (h *Collector) advance(p progress) {
	if h.now, h.moved = p, h.clock(); h.origin.at.IsZero() {
		h.origin = origin{h.share(), h.moved}
	}
}

// newestOf returns the newest values of a run, with the position.
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
