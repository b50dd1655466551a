package dashboard

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/plot"
	"github.com/ringo-ml/ringo/internal/usage"
	"github.com/ringo-ml/ringo/train"
)

// Exporter sends the reports of one rank to a Collector, in this process or in the launcher. The
// rank never waits: without space reports are dropped, first the repeated kinds. The methods are
// safe for concurrent use, and a nil Exporter drops all reports.
type Exporter struct {
	mu     sync.Mutex
	lines  chan []byte // nil after Close
	ended  chan struct{}
	every  time.Duration // interval of reports of steps
	cancel func()
}

const (
	// queued is the maximum of queued lines; half are for records, which no later line replaces.
	queued = 1024
	// leave is the time after a rank's end for the Collector to read the queued lines.
	leave = time.Second
	// beatEvery is the interval of a rank's reports, and slowBeat the one without a page.
	beatEvery = 250 * time.Millisecond
	slowBeat  = time.Second
)

// Dial returns the Exporter of a rank, for the launcher's Collector at the address from its
// Address. Training continues if the Collector cannot be reached, with all reports dropped.
func Dial(address string) *Exporter {
	text, path, _ := strings.Cut(address, " ")
	every, err := time.ParseDuration(text)
	if err != nil {
		return nil
	}
	if path == "" {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := newFeed(every, cancel)
	lines := f.lines
	from, to := io.Pipe()
	go func() {
		defer to.Close()
		for line := range lines {
			_, _ = to.Write(line) // write errors to a closed hub are ignored until Close
		}
	}()
	go func() { // the hub answers after the last line
		defer close(f.ended)
		req, err := http.NewRequestWithContext(ctx, "POST", "http://hub/feed", from)
		if err == nil {
			var res *http.Response
			if res, err = hubAt(path).RoundTrip(req); err == nil {
				_ = res.Body.Close()
			}
		}
		_ = from.CloseWithError(io.ErrClosedPipe)
	}()
	return f
}

func hubAt(socket string) *http.Transport {
	dial := &net.Dialer{Timeout: 5 * time.Second}
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dial.DialContext(ctx, "unix", socket)
	}}
}

func newFeed(every time.Duration, cancel func()) *Exporter {
	return &Exporter{lines: make(chan []byte, queued), ended: make(chan struct{}), every: every, cancel: cancel}
}

// Feed returns the Exporter of a rank in this process.
func (h *Collector) Feed() *Exporter {
	if h == nil {
		return nil
	}
	f := newFeed(h.every(), func() {})
	lines := f.lines
	go func() {
		defer close(f.ended)
		for line := range lines {
			h.Add(line)
		}
	}()
	return f
}

// Record sends a record, as in --json.
func (f *Exporter) Record(v any) { f.enqueue(v, queued) }

// passing sends a report that the next one replaces, if half the queue is free.
func (f *Exporter) passing(v any) { f.enqueue(v, queued/2) }

func (f *Exporter) enqueue(v any, room int) {
	if f == nil {
		return
	}
	line, err := json.Marshal(v)
	if err != nil {
		return // the writer of --json reports values without a JSON form
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lines == nil || len(f.lines) >= room {
		return
	}
	f.lines <- append(line, '\n')
}

// Close waits until the queued lines are taken, for a short time.
func (f *Exporter) Close() {
	if f == nil {
		return
	}
	f.mu.Lock()
	lines := f.lines
	f.lines = nil
	f.mu.Unlock()
	if lines == nil {
		return
	}
	close(lines)
	select {
	case <-f.ended:
	case <-time.After(leave):
	}
	f.cancel()
}

// number is a float64 with null in JSON for NaN and infinities: losses may diverge.
type number = plot.Number

// none is the missing number.
var none = plot.None

// stepStats are a rank's means since the last report, with the position, named as in records.
type stepStats struct {
	Event string `json:"event"` // "beat"
	Rank  int    `json:"rank"`
	// SendsSteps reports whether the rank also sends single steps.
	SendsSteps    bool   `json:"sends_steps"`
	Steps         int    `json:"steps"` // steps since the last report
	Seed          uint64 `json:"seed"`
	Epoch         int    `json:"epoch"`
	Step          int    `json:"step"`
	Done          int64  `json:"done"`
	LR            number `json:"lr"`
	Loss          number `json:"loss"`
	WallS         number `json:"wall_s"`
	StepMS        number `json:"step_ms"`
	ComputeMS     number `json:"compute_ms"`
	DataWaitMS    number `json:"data_wait_ms"`
	PullWaitMS    number `json:"pull_wait_ms,omitempty"`
	CompressMS    number `json:"compress_ms"`
	ExposedCommMS number `json:"exposed_comm_ms"`
	UpdateMS      number `json:"update_ms"`
	Density       number `json:"density"`
	SamplesPerS   number `json:"samples_per_s"`
	// QueuedMS is the time per step of threads ready to run without a processor, and StorageBytes
	// the bytes per second read from storage.
	QueuedMS     number `json:"queued_ms"`
	StorageBytes number `json:"storage_bytes_per_s"`
	*train.Progressive
}

// means returns the fields with means over steps.
func (b *stepStats) means() []*number {
	return []*number{&b.Loss, &b.StepMS, &b.ComputeMS, &b.DataWaitMS, &b.PullWaitMS, &b.CompressMS, &b.ExposedCommMS, &b.UpdateMS, &b.Density, &b.SamplesPerS, &b.QueuedMS, &b.StorageBytes}
}

// Steps returns a function to call after each step of a rank; nil for a nil Exporter. The function
// sends means over several steps. SingleSteps reports whether step records are sent as well.
func (f *Exporter) Steps(rank int, SingleSteps bool) func(train.Step) {
	if f == nil {
		return nil
	}
	b, last := stepStats{Event: "beat", Rank: rank, SendsSteps: SingleSteps}, time.Time{} // the first step is sent immediately
	var m machine
	return func(s train.Step) {
		b.Steps++
		m.steps++
		b.Seed, b.Epoch, b.Step, b.Done, b.LR, b.WallS = s.Seed, s.Epoch, s.Step, s.Done, number(s.LR), number(s.WallS)
		b.Progressive = s.Progressive
		of := []float64{s.Loss, s.StepMS, s.ComputeMS, s.DataWaitMS, s.PullWaitMS, s.CompressMS, s.ExposedCommMS, s.UpdateMS, s.Density, s.SamplesPerS}
		for i, to := range b.means()[:len(of)] {
			*to += number(of[i])
		}
		now := time.Now()
		if now.Sub(last) < f.every {
			return
		}
		for _, to := range b.means() {
			*to /= number(b.Steps)
		}
		m.look(now)
		b.QueuedMS, b.StorageBytes = m.queuedMS, m.storage
		f.passing(b)
		last, b = now, stepStats{Event: "beat", Rank: rank, SendsSteps: SingleSteps}
	}
}

// machine is this process's use of the machine since the last sample. A sample takes some 0.1 ms,
// so the minimum interval is a second.
type machine struct {
	at       time.Time
	steps    int // steps since the sample
	queued   float64
	bytes    int64
	queuedMS number // per step
	storage  number // bytes per second
}

// look takes a sample, unless the last one is recent.
func (m *machine) look(now time.Time) {
	since := now.Sub(m.at).Seconds()
	if since < 1 {
		return
	}
	queued, bytes := usage.Queued(), usage.StorageBytes()
	if !m.at.IsZero() {
		m.queuedMS = number(1e3 * max(0, queued-m.queued) / float64(max(1, m.steps)))
		m.storage = number(float64(max(0, bytes-m.bytes)) / since)
	}
	m.at, m.steps, m.queued, m.bytes = now, 0, queued, bytes
}

// progress is rank 0's position in a phase.
type progress struct {
	Event  string `json:"event"` // "progress"
	Phase  string `json:"phase"`
	Epoch  int    `json:"epoch"`
	Epochs int    `json:"epochs"`
	Done   int    `json:"done"`
	Total  int    `json:"total"`
}

// Observe returns an observer that calls o and reports rank 0's progress. A nil Exporter returns o.
func (f *Exporter) Observe(o train.Observer) train.Observer {
	if f == nil {
		return o
	}
	return &observer{Observer: o, feed: f}
}

type observer struct {
	train.Observer
	feed  *Exporter
	last  time.Time
	phase string // phase and epoch
	epoch int
}

// Progress is called for each batch.
func (o *observer) Progress(p train.Progress) {
	o.Observer.Progress(p)
	if now := time.Now(); now.Sub(o.last) >= o.feed.every || p.Phase != o.phase || p.Epoch != o.epoch || p.Done == p.Total {
		o.last, o.phase, o.epoch = now, p.Phase, p.Epoch
		o.feed.passing(progress{"progress", p.Phase, p.Epoch, p.Epochs, p.Done, p.Total})
	}
}
