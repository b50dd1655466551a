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
	lastly      = 10 * time.Second // or as many steps as there would be beats, where these are longer than a beat
	leastBeats  = 4                // and at least two seconds
	lastSamples = 6                // of processors, two seconds apart: as long as the beats
	sampleEvery = 2 * time.Second
)

// of is what a rank's steps were like, for who looks for causes. Waiting for data and for servers is a part of what beats call computation.
func of(number int, b stepStats) steptrace.RankTimes {
	return steptrace.RankTimes{
		Number: number, StepMS: float64(b.StepMS), ComputeMS: float64(b.ComputeMS - b.DataWaitMS - b.PullWaitMS), DataMS: float64(b.DataWaitMS), ServersMS: float64(b.PullWaitMS),
		CompressMS: float64(b.CompressMS), UpdateMS: float64(b.UpdateMS), ExposedMS: float64(b.ExposedCommMS), QueuedMS: float64(b.QueuedMS), StorageBytes: float64(b.StorageBytes),
	}
}

// ownTime is how long a rank's step takes of its own, without what it waits for others.
func ownTime(b stepStats) (ms float64) { return of(0, b).OwnMS() }

// lately are the ranks' last seconds.
func (h *Collector) lately() (out []steptrace.RankTimes) {
	for _, n := range h.sorted() {
		if r := h.ranks[n]; len(r.beats) >= max(leastBeats, h.beatsIn(2*time.Second)) {
			out = append(out, of(n, r.recent(h.beatsIn(lastly))))
		}
	}
	return out
}

// beatsIn is how many beats a rank tells in some time.
func (h *Collector) beatsIn(t time.Duration) int { return int(t / h.every()) }

// slowed are the ranks of the job that hold up others now.
func (h *Collector) slowed() []steptrace.Straggler { return steptrace.Stragglers(h.lately()) }

// bottleneck names what slows the job now; ok is false where nothing does that is known.
func (h *Collector) bottleneck() (c steptrace.Cause, ok bool) {
	j := steptrace.Job{Ranks: h.lately()}
	if len(j.Ranks) == 0 || len(j.Ranks) < len(h.ranks) {
		return c, false
	}
	// Only where all ranks tell this hub of themselves are all processes of the job that run here known.
	if len(j.Ranks) == h.last().Info.NP { // else some processes of this host may be others of the job
		j.Foreign = h.processors.foreign()
	}
	h.looks.addRecent(&j, h.clock())
	return steptrace.FindCause(j)
}

// looked is what was seen of a step's exchanges.
type looked struct {
	at time.Time
	steptrace.Last
}

const (
	keptLooks = 10 // of exchanges
	fresh     = 15 * time.Second
)

// keep keeps it, and as many before it as are told.
func (l *stepSampler) keep(x looked) {
	if len(l.exchanges) == keptLooks {
		l.exchanges = append(l.exchanges[:0], l.exchanges[1:]...)
	}
	l.exchanges = append(l.exchanges, x)
}

// addRecent adds the exchanges that were seen in the last seconds.
func (l *stepSampler) addRecent(j *steptrace.Job, now time.Time) {
	all, net := 0., map[pair]float64{} // of pairs, by how much longer the first waited for the second than that for it
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

// saw takes what was seen of all ranks, by rank, of one at least; false where it tells of no step, or of one that was seen before.
func (h *Collector) saw(all []*record.Snapshot) (whole, exchanged bool) {
	// Buckets are shown of the first rank that is here: rank 0, where its process is on this host.
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
			if s != nil { // it is in the matrix though it waits for nobody
				last.Waits = append(last.Waits, steptrace.RankWait{Rank: rank, For: rank})
			}
		}
		h.waited(last.Waits)
		l.keep(looked{h.clock(), last})
	}
	return whole, exchanged
}

// processors are how much of the machine's processor time the job had, and others.
type processors struct {
	own     func() []int // the job's processes besides this one; nil: none
	samples []sample
}

// sample is what all processes had taken at one time, and each of the job's, in seconds.
type sample struct {
	at  time.Time
	all float64
	of  map[int]float64
}

// Owns says which processes are the job's, besides this one: what they take of the processors others do not.
func (h *Collector) Owns(processes func() []int) {
	if h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.processors.own = processes
	}
}

// look takes a sample, where the last one is not new.
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
	if len(p.samples) == lastSamples {
		p.samples = append(p.samples[:0], p.samples[1:]...)
	}
	p.samples = append(p.samples, s)
}

// foreign is how many processors others had between the first sample and the last.
func (p *processors) foreign() float64 {
	if len(p.samples) < 2 {
		return 0
	}
	first, last := p.samples[0], p.samples[len(p.samples)-1]
	// A process of the job that has ended meanwhile is not in the last sample: what it took since the first counts as others' then, for
	// as long as the samples reach back.
	busy := last.all - first.all
	for pid, seconds := range last.of {
		busy -= max(0, seconds-first.of[pid]) // one that began meanwhile had taken none
	}
	return max(0, busy/last.at.Sub(first.at).Seconds())
}

func readCause(h *Collector, f *panelData) {
	if c, ok := h.bottleneck(); ok {
		f.Rows = [][]string{{quantity.Percent(c.Share), c.Text}}
		f.Note = "Which part of a step it costs, by the last ten seconds."
	}
}
