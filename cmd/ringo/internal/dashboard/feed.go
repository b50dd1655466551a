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

// Exporter is what one rank tells a Collector, which is in this process or in its launcher. It
// never makes the rank wait: what there is no room for is left out, first of what comes again. Its
// methods may be called from any goroutine, and on nil, which tells nothing.
type Exporter struct {
	mu     sync.Mutex
	lines  chan []byte // nil: closed
	ended  chan struct{}
	every  time.Duration // it tells of steps
	cancel func()
}

const (
	// queued is how many lines wait for a hub that is slow; half of them are for records alone, which do not come again.
	queued = 1024
	// leave is how long a rank that has ended waits for a hub to take what is queued.
	leave = time.Second
	// beatEvery is how often a rank tells of its steps, and slowBeat where there is no page.
	beatEvery = 250 * time.Millisecond
	slowBeat  = time.Second
)

// Dial makes the feed of a rank whose launcher has a hub, at the address that Collector.Address
// gave. A hub that is not there ends no training: nothing is told.
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
			_, _ = to.Write(line) // a hub that is gone takes nothing, until Close
		}
	}()
	go func() { // the hub answers when it has taken the last line
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

// hubAt is how a hub is reached.
func hubAt(socket string) *http.Transport {
	dial := &net.Dialer{Timeout: 5 * time.Second}
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dial.DialContext(ctx, "unix", socket)
	}}
}

func newFeed(every time.Duration, cancel func()) *Exporter {
	return &Exporter{lines: make(chan []byte, queued), ended: make(chan struct{}), every: every, cancel: cancel}
}

// Feed is that of a rank in this process.
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

// Record tells of a record, as --json has it.
func (f *Exporter) Record(v any) { f.enqueue(v, queued) }

// passing tells of what comes again.
func (f *Exporter) passing(v any) { f.enqueue(v, queued/2) }

func (f *Exporter) enqueue(v any, room int) {
	if f == nil {
		return
	}
	line, err := json.Marshal(v)
	if err != nil {
		return // what has no JSON is told of by who writes --json
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lines == nil || len(f.lines) >= room {
		return
	}
	f.lines <- append(line, '\n')
}

// Close waits for what was told to be taken, but not for long.
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

// number is a float that is null in JSON where it is none: losses may blow up.
type number = plot.Number

// none is no value.
var none = plot.None

// stepStats is what a rank tells of its steps since it did last: means, but for what says where it
// is. Names are those of records of steps.
type stepStats struct {
	Event string `json:"event"` // "beat"
	Rank  int    `json:"rank"`
	// Told says that the rank tells of single steps, too.
	Told          bool   `json:"told"`
	Steps         int    `json:"steps"` // since the last one
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
	// QueuedMS is for how long of a step threads of the process were ready to run and had no processor, and StorageBytes how many bytes a
	// second storage read for it.
	QueuedMS     number `json:"queued_ms"`
	StorageBytes number `json:"storage_bytes_per_s"`
	*train.Progressive
}

// means are the fields that are means over steps.
func (b *stepStats) means() []*number {
	return []*number{&b.Loss, &b.StepMS, &b.ComputeMS, &b.DataWaitMS, &b.PullWaitMS, &b.CompressMS, &b.ExposedCommMS, &b.UpdateMS, &b.Density, &b.SamplesPerS, &b.QueuedMS, &b.StorageBytes}
}

// Steps returns what is to be told of each step of a rank, and tells the hub of several together; told says that records of steps come,
// too. It returns nil of a nil Exporter.
func (f *Exporter) Steps(rank int, SingleSteps bool) func(train.Step) {
	if f == nil {
		return nil
	}
	b, last := stepStats{Event: "beat", Rank: rank, Told: SingleSteps}, time.Time{} // the first step is told at once
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
		last, b = now, stepStats{Event: "beat", Rank: rank, Told: SingleSteps}
	}
}

// machine is what this process has of it since the last look, which takes some 0.1 ms: so there is one a second.
type machine struct {
	at       time.Time
	steps    int // since then
	queued   float64
	bytes    int64
	queuedMS number // of a step
	storage  number // bytes a second
}

// look looks, where the last look is not new.
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

// progress is how far rank 0 is in a phase.
type progress struct {
	Event  string `json:"event"` // "progress"
	Phase  string `json:"phase"`
	Epoch  int    `json:"epoch"`
	Epochs int    `json:"epochs"`
	Done   int    `json:"done"`
	Total  int    `json:"total"`
}

// Observe is an observer that tells the hub how far rank 0 is, besides what o does; o itself of a
// nil Exporter.
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
	phase string // and epoch
	epoch int
}

// Progress is told of each batch.
func (o *observer) Progress(p train.Progress) {
	o.Observer.Progress(p)
	if now := time.Now(); now.Sub(o.last) >= o.feed.every || p.Phase != o.phase || p.Epoch != o.epoch || p.Done == p.Total {
		o.last, o.phase, o.epoch = now, p.Phase, p.Epoch
		o.feed.passing(progress{"progress", p.Phase, p.Epoch, p.Epochs, p.Done, p.Total})
	}
}
