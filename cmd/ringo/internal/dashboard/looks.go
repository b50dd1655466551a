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

// What ranks record lies in memory that this process holds. About once a second it looks there at the last whole step: ranks send nothing
// for it, and notice nothing but the processor time, 0.1 ms a rank, of which the looks take at most a thousandth.
const (
	lookEvery = time.Second
	lookShare = 1000        // a look takes no more than this part of the time until the next one,
	askShare  = 200         // and one for who asks no more than this
	lookLeast = time.Minute // but there is one so often
	lastLooks = 60          // that a matrix of the last looks has
	mostShown = 64          // ranks of a matrix
	mostGlass = 1 << 12     // phases that one look reads, a whole ring as recorders are made
)

// stepSampler are what was seen so far.
type stepSampler struct {
	// mu guards the last look; the hub's mutex what follows.
	mu        sync.Mutex
	at        time.Time
	processes []sampledProcess
	due       time.Time // when steps are to be looked at again
	glass     int       // how many phases a look reads of a rank

	lastStep int64
	step     steptrace.Step // of the first rank; without bars: none was seen
	// last are the waits of the last looks, and whole those of all, per step.
	last      [][]steptrace.RankWait
	whole     map[pair]float64
	count     int // looks in whole
	exchanges []looked
}

// pair are a rank and whom it waited for.
type pair struct{ rank, by int }

// sampledProcess is a process of the job, and what it had recorded, nil: nothing.
type sampledProcess struct {
	launch.ProcessInfo
	record *record.Snapshot
}

// freshFor is how long what was seen stands for what is: who asks more often, or many who ask, cost the job no more.
const freshFor = time.Second

// processes are those of the job, as they were at most freshFor ago.
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

// look looks at all processes and their last steps once, and says after which pause it is time to look again.
func (h *Collector) look() time.Duration {
	h.looks.mu.Lock()
	defer h.looks.mu.Unlock()
	return h.lookAtSteps()
}

// lookAtSteps is look. The looks' mutex is held.
func (h *Collector) lookAtSteps() time.Duration {
	l, begun := &h.looks, time.Now()
	l.glass = max(l.glass, steptrace.WholeStepEvents)
	if all := h.glance(l.glass); len(all) > 0 {
		if whole, exchanged := h.saw(all); !whole || !exchanged {
			l.glass = min(2*l.glass, mostGlass) // a step has more of them, or ranks are apart
		}
	}
	took := time.Since(begun)
	l.due = l.at.Add(pause(took, askShare))
	return pause(took, lookShare)
}

// glance looks at all processes, and at the last phases of ranks, and returns what these had recorded. The looks' mutex is held.
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
			is.record, _ = s.Glance(n) // of one that was given back nothing is known
		}
		l.processes = append(l.processes, is)
		if !s.Serves && s.Index < mostRanks && is.record != nil {
			all = append(all, make([]*record.Snapshot, max(0, s.Index+1-len(all)))...)
			all[s.Index] = is.record
		}
	}
	return all
}

// waited counts the waits of a step.
func (h *Collector) waited(waits []steptrace.RankWait) {
	l := &h.looks
	if n := len(l.last); n == lastLooks {
		l.last = append(l.last[:0], l.last[1:]...)
	}
	l.last = append(l.last, waits)
	if l.whole == nil {
		l.whole = map[pair]float64{}
	}
	for _, w := range waits {
		l.whole[pair{w.Rank, w.For}] += w.MS
	}
	l.count++
}

// lookAll looks now and then until stop.
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

// pause is how long after a look that took so long the next one comes, where looks may take that part of the time.
func pause(took time.Duration, share int) time.Duration {
	return min(max(lookEvery, time.Duration(share)*took), lookLeast)
}

// Waits is who waited for whom, as a record of --json.
type Waits struct {
	Event string `json:"event"` // "waits"
	// Steps is how many steps were looked at.
	Steps int `json:"steps"`
	// Ranks are those of the rows and columns of WaitMS: how many ms of a step, in the mean, the rank of a row waited for that of a column
	// to begin an exchange, and in its own column for exchanges that all had begun.
	Ranks  []int       `json:"ranks"`
	WaitMS [][]float64 `json:"wait_ms"`
}

// Waits are those of the whole run; ok is false where none were seen.
func (h *Collector) Waits() (w Waits, ok bool) {
	if h == nil {
		return w, false
	}
	h.look() // once more at ranks of this process
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.looks.matrix(h.looks.whole, h.looks.count, mostRanks), h.looks.count > 0
}

// lately are the waits of the last looks.
func (l *stepSampler) lately() (sum map[pair]float64) {
	sum = map[pair]float64{}
	for _, waits := range l.last {
		for _, w := range waits {
			sum[pair{w.Rank, w.For}] += w.MS
		}
	}
	return sum
}

// matrix is a sum over steps as a mean. Of more ranks than most it has those with the longest waits.
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

// readWaits reads who waited for whom, in the steps that were looked at lately and in all of them, and for whom the others wait longest.
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

// most is for whom others wait longest, if that is more than they wait for exchanges themselves, and how long in the mean of them; -1: nobody.
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

// numbers are figures as JSON has them.
func numbers(x []float64) (out []number) {
	for _, v := range x {
		out = append(out, number(v))
	}
	return out
}

// planned are the buckets of the step that was predicted when the plan was chosen, as records of choices have it.
type planned struct {
	ForwardMS float64 `json:"forward_ms"`
	// ComputeMS is when backward and the last selection end, and StepMS when the step does.
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

// track is a line of a timeline.
type track struct {
	Label string `json:"label"`
	Bars  []bar  `json:"bars"`
}

// bar is a part of it, in ms from the step's start on.
type bar struct {
	Name string  `json:"name"`
	From number  `json:"from"`
	To   number  `json:"to"`
	Lead *number `json:"lead,omitempty"` // since when it stood behind others
	Tone int     `json:"tone"`           // of its bucket
}

// readBuckets reads when the last step of rank 0 that was looked at computed and exchanged its buckets and, where a plan was chosen by a
// prediction, when it should have.
func readBuckets(h *Collector, f *panelData) {
	s := &h.looks.step
	if len(s.Bars) == 0 {
		return
	}
	f.Unit, f.XLabel = "ms", "from the start of forward"
	f.Note = fmt.Sprintf("Step %d of rank 0: when it computed, and when its buckets were selected and exchanged. What stood behind other buckets is pale.", s.Done)
	tones := map[string]int{}
	tone := func(name string) int {
		name, _, _ = strings.Cut(name, ":") // "bucket 3: fc.weight" is the plan's bucket 3
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
				if lead := x.From; lead < now { // one after the other: it waited its turn
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

// layerHistory are the layers of the steps that were told, the oldest first: of many every second
// one, of more every fourth, and so on.
type layerHistory struct {
	done     []int64
	layers   [][]layer
	every    int // one of so many is kept
	received int
}

// mostPassed bounds them: 96 steps of 512 layers take 2 MB.
const mostPassed = 96

// add takes those of a step.
func (p *layerHistory) add(done int64, layers []layer) {
	if n := len(p.layers); n > 0 && len(p.layers[n-1]) != len(layers) { // of another model
		*p = layerHistory{}
	}
	p.received++
	if p.every = max(1, p.every); (p.received-1)%p.every != 0 {
		return
	}
	if len(p.done) == mostPassed { // told is a multiple of twice every, plus one
		for i := range mostPassed / 2 {
			p.done[i], p.layers[i] = p.done[2*i], p.layers[2*i]
		}
		p.done, p.layers, p.every = p.done[:mostPassed/2], p.layers[:mostPassed/2], 2*p.every
	}
	p.done, p.layers = append(p.done, done), append(p.layers, layers)
}

// readLayerTimes reads what a strategy made of each layer's gradient over the run, a grid for each figure that is not the same everywhere.
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
