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

// Status is the state of a job, for programs and text, with stable names; null is unknown.
type Status struct {
	Event   string `json:"event"` // "status"
	Job     string `json:"job"`   // job ID for `ringo status`
	PID     int    `json:"pid"`   // process that answers: the launcher, or the rank
	Host    string `json:"host"`
	Command string `json:"command"`
	Started string `json:"started"` // UTC, in RFC 3339 format
	// RunningS is the running time of the job, in seconds.
	RunningS number `json:"running_s"`
	// State is "starting", "training", "running" for custom programs without run records, "ended",
	// "failed", or "silent" for a job without reports.
	State   string `json:"state"`
	Model   string `json:"model"` // empty for custom programs without run records
	Ranks   int    `json:"ranks_total"`
	Servers int    `json:"servers_total"`
	// Phase is "train" or "evaluate", with PhaseDone of PhaseTotal steps or batches done.
	Phase      string `json:"phase"`
	Epoch      int    `json:"epoch"`
	Epochs     int    `json:"epochs"`
	PhaseDone  int    `json:"phase_done"`
	PhaseTotal int    `json:"phase_total"`
	// Share is the share of the run done, from 0 to 1.
	Share float64 `json:"done_share"`
	// Figures are the newest values, as on the page.
	Figures []Figure `json:"figures"`
	// Step is the mean parts of rank 0's last steps.
	Step      Parts           `json:"step"`
	Processes []ProcessStatus `json:"processes"`
	// Tables are the tables of servers that can be polled.
	Tables []TableStatus `json:"tables"`
	// Stragglers are the ranks that delay other ranks, worst first.
	Stragglers []Straggler `json:"stragglers"`
	// Cause is the main cause of slowness; null if no known cause costs a fifth of a step.
	Cause  *steptrace.Cause `json:"cause"`
	Faults []FaultAt        `json:"faults"`
	// FaultsLeftOut is the number of dropped events in the middle.
	FaultsLeftOut int `json:"faults_left_out"`
}

// Figure is a named value of a panel.
type Figure struct {
	Name  string `json:"name"`
	Value number `json:"value"`
	Text  string `json:"text"` // formatted value
}

// Parts are the parts of a step, in ms.
type Parts struct {
	StepMS        number `json:"step_ms"`
	ComputeMS     number `json:"forward_backward_ms"`
	DataWaitMS    number `json:"data_wait_ms"`
	PullWaitMS    number `json:"pull_wait_ms"`
	CompressMS    number `json:"compress_ms"`
	ExposedCommMS number `json:"exposed_comm_ms"`
	UpdateMS      number `json:"update_ms"`
}

// ProcessStatus is the state of a rank or server.
type ProcessStatus struct {
	Name string `json:"name"` // "rank 3"
	Rank int    `json:"rank"` // server: -1
	PID  int    `json:"pid"`
	// Ended is the exit status, "" while running.
	Ended    string `json:"ended"`
	Restarts int    `json:"restarts"`
	Epoch    int    `json:"epoch"`
	Step     int    `json:"step"`       // last reported step of the epoch; 0: none
	Steps    int64  `json:"steps_done"` // steps of the run done before the current step; -1: unknown
	// StepMS is the mean time of the last steps, and OwnMS the mean without waits for other ranks.
	StepMS number `json:"step_ms"`
	OwnMS  number `json:"own_ms"`
	// SilentS is the time since the last report of a step, in seconds; null without a report.
	SilentS number `json:"silent_s"`
	// Doing is the oldest event in progress, WaitsFor the awaited process, WaitsS the duration.
	Doing    string `json:"doing"`
	WaitsFor string `json:"waits_for"`
	WaitsS   number `json:"waits_s"`
	// Parts are the mean parts of a rank's last steps; null if unknown.
	Parts Parts `json:"parts"`
	// UnderWay is the operations and requests in progress, or a server's queue length.
	UnderWay int `json:"under_way"`
}

// TableStatus is a table of a server of this host.
type TableStatus struct {
	Server int    `json:"server"`
	Table  string `json:"table"` // "": server without a reply
	Rows   int64  `json:"rows"`
	Below  int64  `json:"rows_below"` // rows in the tier below memory
	Bytes  int64  `json:"bytes"`
	// Hits is the share of requested keys found in memory; null without rows on SSD.
	Hits number `json:"hits_share"`
	// Fault is the reason for missing data.
	Fault string `json:"fault"`
}

// Straggler is a rank that delays other ranks, with the reason.
type Straggler struct {
	Rank  int    `json:"rank"`
	Cause string `json:"cause"`
}

// FaultAt is an event for the user.
type FaultAt struct {
	At   string `json:"at"` // UTC, in RFC 3339 format
	Text string `json:"text"`
}

// Identify sets the job's identity, and the function that lists its processes, which may be called
// at any time. Identify must be called before the first request.
func (h *Collector) Identify(name, command string, look func() []launch.ProcessInfo) {
	if h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.name, h.command, h.sees = name, command, look
	}
}

// Status returns the current state of the job.
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

// fill adds the processes: those of the launcher, and ranks with reports.
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

// peerName returns the name of a rank number in the mesh, or of a server.
func peerName(seen []sampledProcess, peer int) string {
	if peer < len(seen) {
		return seen[peer].Name
	}
	return fmt.Sprintf("rank %d", peer)
}

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

// Answer serves the job's state at l, a socket of this user only: /status, and /state with the
// page's data. Ranks report to l too. Answer returns immediately, and Close ends the server.
func (h *Collector) Answer(l net.Listener) {
	s := &site{hub: h}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", answer(h.Status))
	mux.HandleFunc("GET /state", answer(h.snapshot))
	mux.HandleFunc("POST /feed", s.take)
	h.local, h.socket = httpguard.NewServer(mux), l.Addr().String()
	h.answering.Go(func() { _ = h.local.Serve(httpguard.NewCrowd(l, mostViewers+mostRanks)) }) // ended by Close
}

// answer serves the JSON of what read returns, for programs.
func answer[T any](read func() T) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		b, err := json.Marshal(read())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(b, '\n'))
	}
}

func (h *Collector) closeLocal() {
	if h.local != nil {
		_ = h.local.Close()
		h.answering.Wait()
	}
}
