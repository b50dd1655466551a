package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/httpguard"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/steptrace"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// Status is what a job is doing at one time, for programs and for one screen of text. Names do not change; null is a figure that is not
// known.
type Status struct {
	Event   string `json:"event"` // "status"
	Job     string `json:"job"`   // as `ringo status` takes it
	PID     int    `json:"pid"`   // of the process that answers: the launcher, or the rank
	Host    string `json:"host"`
	Command string `json:"command"`
	Started string `json:"started"` // UTC, as RFC 3339 has it
	// RunningS is for how long it has been running, in seconds.
	RunningS number `json:"running_s"`
	// State is "starting", "training", of programs of one's own, which tell no run, "running", "ended", "failed", or of a job that tells nothing "silent".
	State   string `json:"state"`
	Model   string `json:"model"` // "" of programs of one's own, which tell no run
	Ranks   int    `json:"ranks_total"`
	Servers int    `json:"servers_total"`
	// Phase is "train" or "evaluate", of which PhaseDone of PhaseTotal steps or batches are done in an epoch of Epochs.
	Phase      string `json:"phase"`
	Epoch      int    `json:"epoch"`
	Epochs     int    `json:"epochs"`
	PhaseDone  int    `json:"phase_done"`
	PhaseTotal int    `json:"phase_total"`
	// Share is how much of the run is done, from 0 to 1.
	Share float64 `json:"done_share"`
	// Figures are the newest, as the page shows them above its panels.
	Figures []Figure `json:"figures"`
	// Step is where the time of rank 0's last steps went, on average.
	Step      Parts           `json:"step"`
	Processes []ProcessStatus `json:"processes"`
	// Tables are those of the servers that may be asked.
	Tables []TableStatus `json:"tables"`
	// Stragglers are the ranks that hold up the others, the worst first.
	Stragglers []Straggler `json:"stragglers"`
	// Cause is what slows the job most; null: nothing that is known costs a fifth of a step.
	Cause  *steptrace.Cause `json:"cause"`
	Faults []FaultAt        `json:"faults"`
	// FaultsLeftOut is how many there were between the first and the last that are kept.
	FaultsLeftOut int `json:"faults_left_out"`
}

// Figure is a value by name.
type Figure struct {
	Name  string `json:"name"`
	Value number `json:"value"`
	Text  string `json:"text"` // as a person reads it
}

// Parts are those of a step, in ms.
type Parts struct {
	StepMS        number `json:"step_ms"`
	ComputeMS     number `json:"forward_backward_ms"`
	DataWaitMS    number `json:"data_wait_ms"`
	PullWaitMS    number `json:"pull_wait_ms"`
	CompressMS    number `json:"compress_ms"`
	ExposedCommMS number `json:"exposed_comm_ms"`
	UpdateMS      number `json:"update_ms"`
}

// ProcessStatus is a rank, or a server.
type ProcessStatus struct {
	Name string `json:"name"` // "rank 3"
	Rank int    `json:"rank"` // -1 of a server
	PID  int    `json:"pid"`
	// Ended says how it has ended, "" that it runs.
	Ended    string `json:"ended"`
	Restarts int    `json:"restarts"`
	Epoch    int    `json:"epoch"`
	Step     int    `json:"step"`       // of the epoch, the last one that it told of; 0: none yet
	Steps    int64  `json:"steps_done"` // of the run, before the one under way; -1: that is not known
	// StepMS is how long its last steps took on average, and OwnMS without what it waited for others.
	StepMS number `json:"step_ms"`
	OwnMS  number `json:"own_ms"`
	// SilentS is since when it has told of no step, in seconds; null: it never did.
	SilentS number `json:"silent_s"`
	// Doing is the oldest thing that it has begun and not ended, WaitsFor the process for which it waits, "" for none, and WaitsS since when.
	Doing    string `json:"doing"`
	WaitsFor string `json:"waits_for"`
	WaitsS   number `json:"waits_s"`
	// Parts are those of a rank's last steps; null where they are not known.
	Parts Parts `json:"parts"`
	// UnderWay is how many operations and requests it has begun and not ended; of a server: how long its queue is.
	UnderWay int `json:"under_way"`
}

// TableStatus is a table of a server of this host.
type TableStatus struct {
	Server int    `json:"server"`
	Table  string `json:"table"` // "": the server says nothing
	Rows   int64  `json:"rows"`
	Below  int64  `json:"rows_below"` // in the tier below memory
	Bytes  int64  `json:"bytes"`
	// Hits are which share of the keys that were asked for was in memory; null where there is no tier below.
	Hits number `json:"hits_share"`
	// Fault is why nothing is known.
	Fault string `json:"fault"`
}

// Straggler is a rank that holds up others, and by what.
type Straggler struct {
	Rank  int    `json:"rank"`
	Cause string `json:"cause"`
}

// FaultAt is a line about what a person should know.
type FaultAt struct {
	At   string `json:"at"` // UTC, as RFC 3339 has it
	Text string `json:"text"`
}

// Identify says who the job is, and lets the hub see its processes: look may be called at any time. It is called before anybody asks.
func (h *Collector) Identify(name, command string, look func() []launch.ProcessInfo) {
	if h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.name, h.command, h.sees = name, command, look
	}
}

// Status is what the job is doing.
func (h *Collector) Status() Status {
	seen := h.processes()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = h.clock()
	now, info, p := h.clock(), h.last().Info, h.now
	head := h.head()
	out := Status{
		Event: "status", Job: h.name, PID: os.Getpid(), Command: h.command, Started: stamp(h.begun), RunningS: number(now.Sub(h.begun).Seconds()), State: h.state,
		Model: info.Model, Ranks: info.NP, Servers: info.Servers, Phase: p.Phase, Epoch: p.Epoch, Epochs: p.Epochs, PhaseDone: p.Done, PhaseTotal: p.Total,
		Share: head.Share, Figures: h.figures(), Step: h.parts(), Processes: []ProcessStatus{}, Tables: h.tables(), Stragglers: []Straggler{}, Faults: []FaultAt{}, FaultsLeftOut: h.dropped,
	}
	out.Host, _ = os.Hostname()
	h.fill(&out, seen, now)
	if out.State == "starting" && slices.ContainsFunc(seen, func(s sampledProcess) bool { return s.record != nil && s.record.OperationsEnded > 0 }) {
		out.State = "running"
	}
	for _, s := range h.slowed() {
		out.Stragglers = append(out.Stragglers, Straggler{s.Rank, s.Text})
	}
	if c, ok := h.bottleneck(); ok {
		out.Cause = &c
	}
	for _, f := range h.faults {
		out.Faults = append(out.Faults, FaultAt{stamp(f.at), f.text})
	}
	return out
}

// tables are those of servers that were asked.
func (h *Collector) tables() []TableStatus {
	out := []TableStatus{}
	for i, s := range h.servers {
		if s.fault != "" {
			out = append(out, TableStatus{Server: i, Hits: none, Fault: s.fault})
		}
		for _, t := range s.tables {
			out = append(out, TableStatus{Server: i, Table: t.Name, Rows: t.Rows, Below: t.StoredRows, Bytes: t.Bytes, Hits: number(t.hits())})
		}
	}
	return out
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// figures are the newest, as those of the head.
func (h *Collector) figures() (out []Figure) {
	out = []Figure{}
	h.newest(func(name string, v float64, text func(float64) string) {
		if finite(v) {
			out = append(out, Figure{name, number(v), text(v)})
		}
	})
	return out
}

// parts are those of rank 0's last steps.
func (h *Collector) parts() Parts {
	r := h.ranks[0]
	if r == nil {
		return noParts
	}
	return partsOf(r.recent(h.beatsIn(lastly)))
}

var noParts = Parts{none, none, none, none, none, none, none}

func partsOf(b stepStats) Parts {
	return Parts{b.StepMS, max(0, b.ComputeMS-b.DataWaitMS-b.PullWaitMS), b.DataWaitMS, b.PullWaitMS, b.CompressMS, b.ExposedCommMS, b.UpdateMS}
}

// fill tells of each process: those that the launcher sees, and ranks that have told of themselves.
func (h *Collector) fill(out *Status, seen []sampledProcess, now time.Time) {
	told, ranks, servers := map[int]bool{}, 0, 0
	names := func(peer int32) string { return peerName(seen, int(peer)) }
	for _, s := range seen {
		p := ProcessStatus{Name: s.Name, Rank: -1, PID: s.PID, Restarts: s.Restarts, Steps: -1, StepMS: none, OwnMS: none, SilentS: none, WaitsS: none, Parts: noParts}
		if s.Ended {
			p.Ended = cmp.Or(s.ExitStatus, "well")
		}
		if s.Serves {
			servers++
		} else {
			ranks++
			p.Rank, told[s.Index] = s.Index, true
			h.beats(&p, now)
		}
		if !s.Ended {
			doing(&p, s.record, now, names)
		}
		out.Processes = append(out.Processes, p)
	}
	for _, n := range h.sorted() {
		if !told[n] {
			p := ProcessStatus{Name: fmt.Sprintf("rank %d", n), Rank: n, Steps: -1, WaitsS: none, Parts: noParts}
			h.beats(&p, now)
			out.Processes = append(out.Processes, p)
		}
	}
	out.Ranks, out.Servers = max(out.Ranks, ranks), max(out.Servers, servers)
}

// peerName is what a number of the mesh, or of a server, stands for.
func peerName(seen []sampledProcess, peer int) string {
	if peer < len(seen) {
		return seen[peer].Name
	}
	return fmt.Sprintf("rank %d", peer)
}

// beats adds what a rank has told of its steps.
func (h *Collector) beats(p *ProcessStatus, now time.Time) {
	r := h.ranks[p.Rank]
	if r == nil {
		return
	}
	last, mean := r.beats[len(r.beats)-1], r.recent(h.beatsIn(lastly))
	p.Epoch, p.Step, p.Steps = last.Epoch, last.Step, last.Done
	p.Parts = partsOf(mean)
	p.StepMS, p.OwnMS, p.SilentS = mean.StepMS, number(ownTime(mean)), number(now.Sub(r.lastUpdate).Seconds())
}

// doing adds what a process has begun and not ended, by what it had recorded.
func doing(p *ProcessStatus, s *record.Snapshot, now time.Time, name func(int32) string) {
	if s == nil {
		return
	}
	if s.Step >= 0 {
		p.Steps = s.Step
	}
	phase := ""
	for _, e := range s.Open {
		if e.Kind == record.PhaseKind {
			phase = e.Phase.String()
			continue
		}
		p.UnderWay++
		if p.Doing == "" || e.Peer >= 0 && p.WaitsFor == "" {
			p.Doing = s.Text(e.Name)
			if label := s.Text(e.Label); label != "" {
				p.Doing += " of " + label
			}
		}
		if since := cmp.Or(e.Since, e.Begun); e.Peer >= 0 && p.WaitsFor == "" {
			p.WaitsFor = name(e.Peer)
			if since > 0 {
				p.WaitsS = number(max(0, now.Sub(s.Epoch.Add(time.Duration(since))).Seconds()))
			}
		}
	}
	p.Doing = cmp.Or(p.Doing, phase)
}

// Answer answers at l, of which only this user knows, what the job is doing: /status, and /state, what its page shows. Ranks tell
// what they do there, too. It returns at once, and Close ends it.
func (h *Collector) Answer(l net.Listener) {
	s := &site{hub: h}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", s.status)
	mux.HandleFunc("GET /state", s.state)
	mux.HandleFunc("POST /feed", s.take)
	h.local, h.socket = httpguard.NewServer(mux), l.Addr().String()
	h.answering.Go(func() { _ = h.local.Serve(httpguard.NewCrowd(l, mostViewers+mostRanks)) }) // Close ends it
}

// status answers with a Status.
func (s *site) status(w http.ResponseWriter, _ *http.Request) {
	b, err := json.Marshal(s.hub.Status())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n'))
}

// closeLocal ends what Answer began.
func (h *Collector) closeLocal() {
	if h.local != nil {
		_ = h.local.Close()
		h.answering.Wait()
	}
}
