package dashboard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/steptrace"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// This process maps the ranks' recorders, and reads the last complete step from them about once a
// second, without work of the ranks. Cost: 0.1 ms per rank, at most a thousandth of the time.
const (
	lookEvery = time.Second
	lookShare = 1000        // maximum share of a sample in the time until the next sample: 1 in 1000
	askShare  = 200         // maximum share of a sample on request: 1 in 200
	lookLeast = time.Minute // maximum time between samples
	lastLooks = 60          // samples in the matrix of recent waits
	mostShown = 64          // maximum ranks in a matrix
	mostGlass = 1 << 12     // maximum phases read by a sample: a recorder's whole default ring
)

// stepSampler is the samples of steps.
type stepSampler struct {
	// mu guards the last sample; the Collector's mutex guards the fields below.
	mu        sync.Mutex
	at        time.Time
	processes []sampledProcess
	due       time.Time // time of the next sample of steps
	glass     int       // phases read per rank

	lastStep int64
	step     steptrace.Step // step of the first rank; no bars before the first sample
	// last are the waits of the last samples, and whole the sums of all samples.
	last      [][]steptrace.RankWait
	whole     map[pair]float64
	count     int // number of samples in whole
	exchanges []looked
}

// pair is a waiting rank and the awaited rank.
type pair struct{ rank, by int }

// sampledProcess is a process of the job, with its record, or nil.
type sampledProcess struct {
	launch.ProcessInfo
	record *record.Snapshot
}

// freshFor is the time in which requests share a sample, so that frequent requests are cheap.
const freshFor = time.Second

// processes returns the job's processes, at most freshFor old.
func (h *Collector) processes() []sampledProcess {
	l := &h.looks
	l.mu.Lock()
	defer l.mu.Unlock()
	switch now := h.clock(); {
	case !l.at.IsZero() && now.Sub(l.at) <= freshFor:
	case now.Before(l.due):
		h.glance(0)
	default:
		h.lookAtSteps()
	}
	return l.processes
}

// look samples all processes and their last steps, and returns the pause until the next sample.
func (h *Collector) look() time.Duration {
	h.looks.mu.Lock()
	defer h.looks.mu.Unlock()
	return h.lookAtSteps()
}

// lookAtSteps is look for a caller that holds looks.mu.
func (h *Collector) lookAtSteps() time.Duration {
	l, begun := &h.looks, time.Now()
	l.glass = max(l.glass, steptrace.WholeStepEvents)
	if all := h.glance(l.glass); len(all) > 0 {
		if whole, exchanged := h.saw(all); !whole || !exchanged {
			l.glass = min(2*l.glass, mostGlass) // a step has more phases, or ranks are at different steps
		}
	}
	took := time.Since(begun)
	l.due = l.at.Add(pause(took, askShare))
	return pause(took, lookShare)
}

// glance samples all processes, and returns the last phases of ranks. The caller holds looks.mu.
func (h *Collector) glance(phases int) (all []*record.Snapshot) {
	h.mu.Lock()
	sees := h.sees
	h.mu.Unlock()
	if sees == nil {
		return nil
	}
	l := &h.looks
	l.at, l.processes = h.clock(), nil
	for _, s := range sees() {
		is, n := sampledProcess{ProcessInfo: s}, phases
		if s.Serves {
			n = 0
		}
		if s.Glance != nil {
			is.record, _ = s.Glance(n) // released memory has no record
		}
		l.processes = append(l.processes, is)
		if !s.Serves && s.Index < mostRanks && is.record != nil {
			all = append(all, make([]*record.Snapshot, max(0, s.Index+1-len(all)))...)
			all[s.Index] = is.record
		}
	}
	return all
}

// waited adds the waits of a step.
func (h *Collector) waited(waits []steptrace.RankWait) {
	l := &h.looks
	l.last = keep(l.last, waits, lastLooks)
	if l.whole == nil {
		l.whole = map[pair]float64{}
	}
	for _, w := range waits {
		l.whole[pair{w.Rank, w.For}] += w.MS
	}
	l.count++
}

func (h *Collector) lookAll(stop <-chan struct{}) {
	next := time.NewTimer(lookEvery)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			next.Reset(h.look())
		case <-stop:
			return
		}
	}
}

// pause returns the pause after a sample of duration took, for a maximum share of 1/share.
func pause(took time.Duration, share int) time.Duration {
	return min(max(lookEvery, time.Duration(share)*took), lookLeast)
}

// Waits is the matrix of waits, as a --json record.
type Waits struct {
	Event string `json:"event"` // "waits"
	// Steps is the number of sampled steps.
	Steps int `json:"steps"`
	// Ranks are the rows and columns of WaitMS: the mean ms per step that a row's rank waited for a
	// column's to begin an exchange, and on the diagonal for exchanges that all had begun.
	Ranks  []int       `json:"ranks"`
	WaitMS [][]float64 `json:"wait_ms"`
}

// Waits returns the waits of the whole run; ok is false without samples.
func (h *Collector) Waits() (w Waits, ok bool) {
	if h == nil {
		return w, false
	}
	h.look() // a last sample, for ranks of this process
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.looks.matrix(h.looks.whole, h.looks.count, mostRanks), h.looks.count > 0
}

// lately returns the summed waits of the last samples.
func (l *stepSampler) lately() (sum map[pair]float64) {
	sum = map[pair]float64{}
	for _, waits := range l.last {
		for _, w := range waits {
			sum[pair{w.Rank, w.For}] += w.MS
		}
	}
	return sum
}

// matrix returns the mean waits over steps, restricted to the most ranks with the longest waits.
func (l *stepSampler) matrix(sum map[pair]float64, steps, most int) Waits {
	w := Waits{Event: "waits", Steps: steps}
	long := map[int]float64{}
	for p, t := range sum {
		long[p.rank] += t
		long[p.by] += t
	}
	w.Ranks = slices.SortedFunc(maps.Keys(long), func(a, b int) int { return cmp.Or(cmp.Compare(long[b], long[a]), cmp.Compare(a, b)) })
	w.Ranks = w.Ranks[:min(most, len(w.Ranks))]
	slices.Sort(w.Ranks)
	for _, rank := range w.Ranks {
		row := make([]float64, len(w.Ranks))
		for i, by := range w.Ranks {
			row[i] = sum[pair{rank, by}] / float64(max(1, steps))
		}
		w.WaitMS = append(w.WaitMS, row)
	}
	return w
}

// readWaits fills the panel of waits, recent and in total, with the rank that other ranks wait for.
func readWaits(h *Collector, f *panelData) {
	l := &h.looks
	if l.count == 0 {
		return
	}
	f.Unit = "ms"
	f.Note = "A row for each rank: how long it waited in a step for the rank of a column to begin an exchange; where row and column are the same rank, for exchanges that all had begun. Means of steps that were looked at, at most one a second."
	for _, part := range []struct {
		title string
		of    Waits
	}{{fmt.Sprintf("the last %d looks", len(l.last)), l.matrix(l.lately(), len(l.last), mostShown)}, {fmt.Sprintf("all %d looks", l.count), l.matrix(l.whole, l.count, mostShown)}} {
		g := grid{Title: part.title, RowsAre: "rank", ColumnsAre: "waited for rank"}
		for i, rank := range part.of.Ranks {
			g.Rows, g.Columns = append(g.Rows, fmt.Sprint(rank)), append(g.Columns, fmt.Sprint(rank))
			g.Data = append(g.Data, numbers(part.of.WaitMS[i]))
		}
		f.Grids = append(f.Grids, g)
	}
	if rank, ms := most(l.matrix(l.lately(), len(l.last), mostRanks)); rank >= 0 {
		f.Marks = append(f.Marks, fmt.Sprintf("others wait longest for rank %d: %s ms of a step, each of them", rank, short(ms)))
	}
}

// most returns the rank that others await longest, and the mean ms; -1 if exchanges take longer.
func most(w Waits) (rank int, ms float64) {
	rank = -1
	itself := 0.
	for i := range w.Ranks {
		itself += w.WaitMS[i][i]
		sum := 0.
		for k := range w.Ranks {
			if k != i {
				sum += w.WaitMS[k][i]
			}
		}
		if mean := sum / float64(max(1, len(w.Ranks)-1)); mean > ms {
			rank, ms = w.Ranks[i], mean
		}
	}
	if ms <= itself/float64(max(1, len(w.Ranks))) {
		return -1, 0
	}
	return rank, ms
}

func numbers(x []float64) (out []number) {
	for _, v := range x {
		out = append(out, number(v))
	}
	return out
}

// planned is the predicted step of the chosen plan, as in records of choices.
type planned struct {
	ForwardMS float64 `json:"forward_ms"`
	// ComputeMS is the end of backward and the last selection, and StepMS the end of the step.
	ComputeMS float64         `json:"compute_end_ms"`
	StepMS    float64         `json:"step_ms"`
	Buckets   []plannedBucket `json:"buckets"`
}

type plannedBucket struct {
	Bucket   int     `json:"bucket"`
	SelectMS float64 `json:"select_start_ms"`
	Selected float64 `json:"select_end_ms"`
	SendMS   float64 `json:"send_start_ms"`
	SentMS   float64 `json:"send_end_ms"`
}

type track struct {
	Label string `json:"label"`
	Bars  []bar  `json:"bars"`
}

// bar is a period in a track, in ms from the step's start.
type bar struct {
	Name string  `json:"name"`
	From number  `json:"from"`
	To   number  `json:"to"`
	Lead *number `json:"lead,omitempty"` // begin of waiting behind other buckets
	Tone int     `json:"tone"`           // color, by bucket
}

// readBuckets fills the panel with the computation and exchange of buckets in rank 0's last sampled
// step, and the predicted times, if the plan was chosen by a prediction.
func readBuckets(h *Collector, f *panelData) {
	s := &h.looks.step
	if len(s.Bars) == 0 {
		return
	}
	f.Unit, f.XLabel = "ms", "from the start of forward"
	f.Note = fmt.Sprintf("Step %d of rank 0: when it computed, and when its buckets were selected and exchanged. What stood behind other buckets is pale.", s.Done)
	tones := map[string]int{}
	tone := func(name string) int {
		name, _, _ = strings.Cut(name, ":") // the label "bucket 3: fc.weight" matches the plan's bucket 3
		if _, known := tones[name]; !known {
			tones[name] = len(tones)
		}
		return tones[name]
	}
	var end number
	for _, lane := range []struct {
		label  string
		phases []string
	}{{"data and servers", []string{"data wait", "pull"}}, {"forward, backward", []string{"forward", "backward"}}, {"codecs", []string{"compress"}}, {"exchange", []string{"exchange"}}, {"update", []string{"update"}}} {
		t := track{Label: lane.label}
		now := number(-1e300)
		bars := slices.DeleteFunc(slices.Clone(s.Bars), func(b steptrace.Bar) bool { return !slices.Contains(lane.phases, b.Phase) })
		if lane.label == "exchange" {
			slices.SortStableFunc(bars, func(a, b steptrace.Bar) int { return cmp.Compare(a.EndMS, b.EndMS) })
		}
		for _, b := range bars {
			x := bar{Name: cmp.Or(b.Name, b.Phase), From: number(b.StartMS), To: number(b.EndMS), Tone: tone(cmp.Or(b.Name, b.Phase))}
			if lane.label == "exchange" {
				if lead := x.From; lead < now { // sequential exchanges: the bucket waited for its predecessors
					x.Lead, x.From = &lead, min(now, x.To)
				}
				now = max(now, x.To)
			}
			end = max(end, x.To)
			t.Bars = append(t.Bars, x)
		}
		if len(t.Bars) > 0 {
			f.Tracks = append(f.Tracks, t)
		}
	}
	p := h.planned
	if p == nil {
		f.Note += " Predictions come with --tune, --strategy auto and measured plans."
		return
	}
	f.Marks = append(f.Marks, fmt.Sprintf("predicted %s ms a step, this one %s", short(p.StepMS), short(float64(end))))
	codecs, sends := track{Label: "predicted: codecs"}, track{Label: "predicted: exchange"}
	for _, b := range p.Buckets {
		name := fmt.Sprintf("bucket %d", b.Bucket)
		if b.Selected > b.SelectMS {
			codecs.Bars = append(codecs.Bars, bar{Name: name, From: number(b.SelectMS), To: number(b.Selected), Tone: tone(name)})
		}
		sends.Bars = append(sends.Bars, bar{Name: name, From: number(b.SendMS), To: number(b.SentMS), Tone: tone(name)})
	}
	computes := track{Label: "predicted: forward, backward", Bars: []bar{{Name: "forward", From: 0, To: number(p.ForwardMS), Tone: tone("forward")}, {Name: "backward", From: number(p.ForwardMS), To: number(p.ComputeMS), Tone: tone("backward")}}}
	for _, t := range []track{computes, codecs, sends} {
		if len(t.Bars) > 0 {
			f.Tracks = append(f.Tracks, t)
		}
	}
}

// layerHistory is the layers of recorded steps, oldest first, thinned as steps accumulate.
type layerHistory struct {
	done     []int64
	layers   [][]layer
	every    int // interval of kept steps
	received int
}

// mostPassed is the maximum number of kept steps: 96 steps of 512 layers take 2 MB.
const mostPassed = 96

func (p *layerHistory) add(done int64, layers []layer) {
	if n := len(p.layers); n > 0 && len(p.layers[n-1]) != len(layers) { // different model
		*p = layerHistory{}
	}
	p.received++
	if p.every = max(1, p.every); (p.received-1)%p.every != 0 {
		return
	}
	if len(p.done) == mostPassed { // received is a multiple of 2*every, plus 1
		for i := range mostPassed / 2 {
			p.done[i], p.layers[i] = p.done[2*i], p.layers[2*i]
		}
		p.done, p.layers, p.every = p.done[:mostPassed/2], p.layers[:mostPassed/2], 2*p.every
	}
	p.done, p.layers = append(p.done, done), append(p.layers, layers)
}

// readLayerTimes fills the panel with the strategy's effect on each layer's gradient over the run:
// a grid for each value that is not constant.
func readLayerTimes(h *Collector, f *panelData) {
	p := &h.passed
	if len(p.done) == 0 {
		return
	}
	f.Note = "A row for each layer, in the order in which backward finishes them, and a column for each step that told of them. The darker, the more."
	for _, part := range []struct {
		title   string
		percent bool
		of      func(layer) number
	}{{"share sent", true, func(l layer) number { return l.Density }}, {"threshold", false, func(l layer) number { return l.Threshold }}, {"norm of the residual", false, func(l layer) number { return l.ResidualNorm }}} {
		g := grid{Title: part.title, RowsAre: "", ColumnsAre: "step", Percent: part.percent}
		some := false
		for _, l := range p.layers[0] {
			g.Rows = append(g.Rows, l.Name)
		}
		for i := range g.Rows {
			row := make([]number, len(p.done))
			for k := range p.done {
				row[k] = part.of(p.layers[k][i])
				some = some || row[k] != 0 && !(part.percent && row[k] == 1)
			}
			g.Data = append(g.Data, row)
		}
		for _, done := range p.done {
			g.Columns = append(g.Columns, fmt.Sprint(done))
		}
		if some {
			f.Grids = append(f.Grids, g)
		}
	}
}
