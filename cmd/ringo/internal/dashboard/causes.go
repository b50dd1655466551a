package dashboard

import (
	"cmp"
	"math"
	"os"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/steptrace"
	"github.com/ringo-ml/ringo/internal/usage"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

const (
	lastly      = 10 * time.Second // span of the means, in reports: longer if steps are long
	leastBeats  = 4                // minimum of reports for means; they span two seconds, too
	lastSamples = 6                // samples of processor times, two seconds apart: 10 s in total
	sampleEvery = 2 * time.Second
)

// of converts a rank's mean report to RankTimes. A report's computation includes waits for input.
func of(number int, b stepStats) steptrace.RankTimes {
	return steptrace.RankTimes{
		Number: number, StepMS: float64(b.StepMS), ComputeMS: float64(b.ComputeMS - b.DataWaitMS - b.PullWaitMS), DataMS: float64(b.DataWaitMS), ServersMS: float64(b.PullWaitMS),
		CompressMS: float64(b.CompressMS), UpdateMS: float64(b.UpdateMS), ExposedMS: float64(b.ExposedCommMS), QueuedMS: float64(b.QueuedMS), StorageBytes: float64(b.StorageBytes),
	}
}

// ownTime returns the rank's time per step, without waits for other ranks.
func ownTime(b stepStats) (ms float64) { return of(0, b).OwnMS() }

// lately returns each rank's mean times in the last seconds.
func (h *Collector) lately() (out []steptrace.RankTimes) {
	for _, n := range h.sorted() {
		if r := h.ranks[n]; len(r.beats) >= max(leastBeats, h.beatsIn(2*time.Second)) {
			out = append(out, of(n, r.recent(h.beatsIn(lastly))))
		}
	}
	return out
}

func (h *Collector) beatsIn(t time.Duration) int { return int(t / h.every()) }

// slowed returns the ranks that currently delay other ranks.
func (h *Collector) slowed() []steptrace.Straggler { return steptrace.Stragglers(h.lately()) }

// bottleneck returns the current main cause of slowness; ok is false without a known cause.
func (h *Collector) bottleneck() (c steptrace.Cause, ok bool) {
	j := steptrace.Job{Ranks: h.lately()}
	if len(j.Ranks) == 0 || len(j.Ranks) < len(h.ranks) {
		return c, false
	}
	// Only if all ranks report to this Collector, all local processes of the job are known.
	if len(j.Ranks) == h.last().Info.NP { // otherwise some processes of this host may belong to the job
		j.Foreign = h.processors.foreign()
	}
	h.looks.addRecent(&j, h.clock())
	return steptrace.FindCause(j)
}

// looked is the exchanges of a sampled step.
type looked struct {
	at time.Time
	steptrace.Last
}

const (
	keptLooks = 10 // steps with exchanges
	fresh     = 15 * time.Second
)

// addRecent adds the exchanges sampled in the last seconds.
func (l *stepSampler) addRecent(j *steptrace.Job, now time.Time) {
	all, net := 0., map[pair]float64{} // excess of the first rank's wait for the second over the reverse wait, by pair
	for _, seen := range l.exchanges {
		if now.Sub(seen.at) > fresh {
			continue
		}
		for _, w := range seen.Waits {
			all += w.MS
			net[pair{min(w.Rank, w.For), max(w.Rank, w.For)}] += w.MS * float64(cmp.Compare(w.Rank, w.For))
		}
		j.PerStep = len(seen.Exchanges) / len(j.Ranks)
		j.Exchanges = append(j.Exchanges, seen.Exchanges...)
	}
	if all > 0 {
		j.Together = 1
		for _, ms := range net {
			j.Together -= math.Abs(ms) / all
		}
	}
}

// saw adds the snapshots of all ranks. whole reports that the first local rank has a complete step,
// and exchanged that the ranks have a complete step with an exchange.
func (h *Collector) saw(all []*record.Snapshot) (whole, exchanged bool) {
	// The timeline of buckets is of the first local rank: rank 0, if its process is on this host.
	first := slices.IndexFunc(all, func(s *record.Snapshot) bool { return s != nil })
	step, whole := steptrace.StepOf(first, all[first])
	last, exchanged := steptrace.LastStep(all)
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &h.looks
	if whole {
		l.step = step
	}
	if exchanged && (l.count == 0 || last.Done != l.lastStep) {
		l.lastStep = last.Done
		for rank, s := range all {
			if s != nil { // included in the matrix even without waits
				last.Waits = append(last.Waits, steptrace.RankWait{Rank: rank, For: rank})
			}
		}
		h.waited(last.Waits)
		l.exchanges = keep(l.exchanges, looked{h.clock(), last}, keptLooks)
	}
	return whole, exchanged
}

// processors are samples of the processor time of the job and of other processes.
type processors struct {
	own     func() []int // other processes of the job; nil: none
	samples []sample
}

// sample is the total processor time of all processes, and of each process of the job, in seconds.
type sample struct {
	at  time.Time
	all float64
	of  map[int]float64
}

// Owns sets the function that returns the PIDs of the job's other processes.
func (h *Collector) Owns(processes func() []int) {
	if h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.processors.own = processes
	}
}

// look takes a sample, unless the last one is recent.
func (p *processors) look(now time.Time) {
	if n := len(p.samples); n > 0 && now.Sub(p.samples[n-1].at) < sampleEvery {
		return
	}
	s := sample{at: now, all: usage.Busy(), of: map[int]float64{}}
	own := []int{os.Getpid()}
	if p.own != nil {
		own = append(own, p.own()...)
	}
	for _, pid := range own {
		s.of[pid] = usage.Of(pid)
	}
	p.samples = keep(p.samples, s, lastSamples)
}

// foreign returns the mean number of processors that processes outside the job use.
func (p *processors) foreign() float64 {
	if len(p.samples) < 2 {
		return 0
	}
	first, last := p.samples[0], p.samples[len(p.samples)-1]
	// The last sample lacks ended processes: their time counts as foreign for a while.
	busy := last.all - first.all
	for pid, seconds := range last.of {
		busy -= max(0, seconds-first.of[pid]) // a new process has 0 in the first sample
	}
	return max(0, busy/last.at.Sub(first.at).Seconds())
}

func readCause(h *Collector, f *panelData) {
	if c, ok := h.bottleneck(); ok {
		f.Rows = [][]string{{quantity.Percent(c.Share), c.Text}}
		f.Note = "Which part of a step it costs, by the last ten seconds."
	}
}
