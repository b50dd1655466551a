// Package dashboard is the page of a job that goes on (`ringo train --http`): what its ranks tell
// is brought together in one place, kept in memory of a bounded size, and shown by panels, which
// are rows of a table.
//
// The place is the launcher, which outlives ranks and hears of their end; of a job without one it is the process of rank 0. Ranks tell
// over a connection of their own, never wait for it, and do the same whether anybody looks or not.
package dashboard

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/runlog"
	"github.com/ringo-ml/ringo/internal/steptrace"
)

// What a hub keeps, so that neither ranks nor steps make it large: 64 ranks and any number of steps take about 4 MB.
const (
	mostRecords = 2048 // of steps, and of epochs, of a run
	mostRanks   = 1024
	mostBeats   = 120 // of a rank
	mostFaults  = 200
	mostLayers  = 512
	mostText    = 2000 // bytes of a fault
)

// Collector brings together what the ranks of a job tell. Its methods may be called from any
// goroutine, and on nil, which does nothing.
type Collector struct {
	mu     sync.Mutex
	log    *runlog.Log
	begun  time.Time
	clock  func() time.Time
	ranks  map[int]*rank
	now    progress
	moved  time.Time // when rank 0 did last
	origin origin
	layers []layer
	passed layerHistory
	looks  stepSampler
	// processors are this host's.
	processors processors
	planned    *planned       // of the newest choice; nil: nothing was predicted
	epoch      map[string]any // the last record of an epoch
	choices    []string
	faults     []fault
	dropped    int // faults
	servers    []served
	state      string

	site *site // nil: nobody can look

	// Of who asks on this host: see Answer and Identify.
	name, command string
	sees          func() []launch.ProcessInfo
	asked         time.Time // when somebody did last
	local         *http.Server
	socket        string
	answering     sync.WaitGroup
}

// fault is something that a person should know.
type fault struct {
	at   time.Time
	text string
}

// rank is what is known of one.
type rank struct {
	beats      []stepStats // the last ones
	lastUpdate time.Time
}

// layer is what a step did to a layer's gradient.
type layer struct {
	Name         string `json:"name"`
	Density      number `json:"density"`
	Threshold    number `json:"threshold"`
	ResidualNorm number `json:"residual_norm"`
}

// NewHub makes one that nobody has told anything yet.
func NewHub() *Collector {
	return newHub(time.Now)
}

func newHub(clock func() time.Time) *Collector {
	h := &Collector{log: runlog.NewLog("this run"), begun: clock(), clock: clock, ranks: map[int]*rank{}, state: "starting"}
	h.log.Most = mostRecords
	return h
}

// Add takes a line of a feed. What it does not know it passes over: ranks are of this version, but what they tell was perhaps cut.
func (h *Collector) Add(line []byte) {
	var is struct {
		Event string `json:"event"`
	}
	if h == nil || json.Unmarshal(line, &is) != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch is.Event {
	case "beat":
		var b stepStats
		if json.Unmarshal(line, &b) == nil {
			h.beat(b, line)
		}
	case "progress":
		var p progress
		if json.Unmarshal(line, &p) == nil {
			h.advance(p)
		}
	default:
		h.record(is.Event, line)
	}
}

// beat takes what a rank tells of its steps. Of rank 0, where it tells of no single ones, they are the curves.
func (h *Collector) beat(b stepStats, line []byte) {
	r := h.ranks[b.Rank]
	if r == nil {
		if b.Rank < 0 || len(h.ranks) == mostRanks {
			return
		}
		r = new(rank)
		h.ranks[b.Rank] = r
	}
	if n := len(r.beats); n == mostBeats {
		r.beats = r.beats[:copy(r.beats, r.beats[1:])]
	}
	r.beats, r.lastUpdate = append(r.beats, b), h.clock()
	h.processors.look(r.lastUpdate)
	if h.state == "starting" {
		h.state = "training"
	}
	if b.Rank == 0 && !b.Told {
		_ = h.log.Add([]byte(strings.Replace(string(line), `"event":"beat"`, `"event":"step"`, 1))) // what the log refuses has no figures
	}
}

// record takes a record of --json.
func (h *Collector) record(event string, line []byte) {
	if err := h.log.Add(line); err != nil {
		h.fault("a record cannot be shown: " + err.Error())
	}
	switch event {
	case "run":
		h.state, h.now, h.origin = "training", progress{}, origin{}
	case "step":
		h.addLayers(line)
	case "timeline":
		var s steptrace.Step
		if json.Unmarshal(line, &s) == nil {
			h.looks.step = s
		}
	case "epoch":
		if h.epoch = nil; json.Unmarshal(line, &h.epoch) != nil {
			h.epoch = nil
		}
		h.addLayers(line)
		delete(h.epoch, "layers")
	case "remark":
		var m struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(line, &m) == nil {
			h.fault(m.Text)
		}
	case "choice", "choice_measured":
		h.choice(line)
	}
}

// addLayers takes the layers of a record that has them.
func (h *Collector) addLayers(line []byte) {
	var s struct {
		Done   int64   `json:"done"`
		Layers []layer `json:"layers"`
	}
	if json.Unmarshal(line, &s) == nil && len(s.Layers) > 0 {
		h.layers = s.Layers[:min(len(s.Layers), mostLayers)]
		h.passed.add(s.Done, h.layers)
	}
}

// AddEvent takes a line about what a person should know: a fault, a slow rank, a process that has
// ended.
func (h *Collector) AddEvent(text string) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault(text)
}

// fault notes what a person should know. The first ones and the last are kept: those tell why, these what is now.
func (h *Collector) fault(text string) {
	if len(text) > mostText {
		text = strings.ToValidUTF8(text[:mostText], "") + "…"
	}
	if len(h.faults) == mostFaults {
		h.faults = slices.Delete(h.faults, mostFaults/2, mostFaults/2+1)
		h.dropped++
	}
	h.faults = append(h.faults, fault{h.clock(), text})
}

// end notes how the job has ended.
func (h *Collector) end(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = "ended"
	if err != nil {
		h.state = "failed"
		h.fault(err.Error())
	}
}

// last is the run whose records come, an empty one before the first.
func (h *Collector) last() *runlog.Run {
	if all := h.log.Runs(); len(all) > 0 {
		return all[len(all)-1]
	}
	return new(runlog.Run)
}

// sorted are the ranks that have told something, by number.
func (h *Collector) sorted() (numbers []int) {
	for n := range h.ranks {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers
}

// recent is the mean of a rank's last beats, weighted by their steps.
func (r *rank) recent(n int) (mean stepStats) {
	for _, b := range r.beats[max(0, len(r.beats)-n):] {
		mean.Steps += b.Steps
		from, to := b.means(), mean.means()
		for i := range to {
			*to[i] += *from[i] * number(b.Steps)
		}
	}
	for _, to := range mean.means() {
		*to /= number(max(1, mean.Steps))
	}
	return mean
}

// finite says that a value is a number.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
