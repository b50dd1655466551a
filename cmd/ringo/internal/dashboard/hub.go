// Package dashboard is the web page of a running job (`ringo train --http`): a Collector combines
// the reports of all ranks in limited memory, and panels, the rows of a table, display the data.
//
// The Collector is in the launcher, which outlives ranks and sees their ends; in a job without a
// launcher, in the process of rank 0. Ranks report over separate connections and never wait for
// them. Ranks behave the same with and without viewers.
package dashboard

import (
	"encoding/json"
	"maps"
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

// Limits that keep the Collector small: 64 ranks and any number of steps take about 4 MB.
const (
	mostRecords = 2048 // records of steps, and of epochs, of a run
	mostRanks   = 1024
	mostBeats   = 120 // beats of a rank
	mostFaults  = 200
	mostLayers  = 512
	mostText    = 2000 // bytes of an event's text
)

// Collector combines a job's reports. Safe for concurrent use; nil does no work.
type Collector struct {
	mu         sync.Mutex
	log        *runlog.Log
	begun      time.Time
	clock      func() time.Time
	ranks      map[int]*rank
	now        progress
	moved      time.Time // time of rank 0's last progress
	origin     origin
	layers     []layer
	passed     layerHistory
	looks      stepSampler
	processors processors
	planned    *planned       // prediction for the newest choice; nil: none
	epoch      map[string]any // last record of an epoch
	choices    []string
	faults     []fault
	dropped    int // dropped events
	servers    []served
	state      string

	site *site // nil without a page

	// name and the fields below answer local requests: see Answer and Identify.
	name, command string
	sees          func() []launch.ProcessInfo
	asked         time.Time // time of the last request
	local         *http.Server
	socket        string
	answering     sync.WaitGroup
}

type fault struct {
	at   time.Time
	text string
}

type rank struct {
	beats      []stepStats // last beats
	lastUpdate time.Time
}

// layer is a step's effect on a layer's gradient.
type layer struct {
	Name         string `json:"name"`
	Density      number `json:"density"`
	Threshold    number `json:"threshold"`
	ResidualNorm number `json:"residual_norm"`
}

// NewHub returns an empty Collector.
func NewHub() *Collector {
	return newHub(time.Now)
}

func newHub(clock func() time.Time) *Collector {
	h := &Collector{log: runlog.NewLog("this run"), begun: clock(), clock: clock, ranks: map[int]*rank{}, state: "starting"}
	h.log.Most = mostRecords
	return h
}

// Add adds a line from an Exporter. Unknown and incomplete lines are ignored.
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

// beat adds a rank's means. If rank 0 sends no step records, its means replace them.
func (h *Collector) beat(b stepStats, line []byte) {
	r := h.ranks[b.Rank]
	if r == nil {
		if b.Rank < 0 || len(h.ranks) == mostRanks {
			return
		}
		r = new(rank)
		h.ranks[b.Rank] = r
	}
	r.beats, r.lastUpdate = keep(r.beats, b, mostBeats), h.clock()
	h.processors.look(r.lastUpdate)
	if h.state == "starting" {
		h.state = "training"
	}
	if b.Rank == 0 && !b.SendsSteps {
		_ = h.log.Add([]byte(strings.Replace(string(line), `"event":"beat"`, `"event":"step"`, 1))) // a refused line has no values
	}
}

func (h *Collector) record(event string, line []byte) {
	if err := h.log.Add(line); err != nil {
		h.fault("a record cannot be shown: " + err.Error())
	}
	switch event {
	case "run":
		h.state, h.now, h.origin = "training", progress{}, origin{}
		if np := h.last().Info.NP; np > 0 { // a job that continues may have fewer ranks
			maps.DeleteFunc(h.ranks, func(n int, _ *rank) bool { return n >= np })
		}
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

// AddEvent adds a line for the user: an error, a slow rank, the end of a process.
func (h *Collector) AddEvent(text string) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault(text)
}

// fault adds an event. The first events, the cause, and the last, the state, are never dropped.
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

func (h *Collector) end(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = "ended"
	if err != nil {
		h.state = "failed"
		h.fault(err.Error())
	}
}

// last returns the current run, an empty run before the first record.
func (h *Collector) last() *runlog.Run {
	if all := h.log.Runs(); len(all) > 0 {
		return all[len(all)-1]
	}
	return new(runlog.Run)
}

func (h *Collector) sorted() []int { return slices.Sorted(maps.Keys(h.ranks)) }

// recent returns the mean of a rank's last n beats, weighted by their steps.
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

// keep appends v to the last values, at most the given number.
func keep[T any](last []T, v T, most int) []T {
	if len(last) == most {
		last = slices.Delete(last, 0, 1)
	}
	return append(last, v)
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
