// Package serve answers requests for predictions over HTTP: JSON rows, the Open Inference Protocol,
// and a page with a form. Requests of many clients share forward passes, and a newer checkpoint
// replaces the model between two batches.
package serve

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/httpguard"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/serving/batcher"
	"github.com/ringo-ml/ringo/internal/watch/metrics"
	"github.com/ringo-ml/ringo/internal/watch/metrics/scrape"
)

// Config configures a Server. All fields are required, except as noted.
type Config struct {
	Name    string // name of the model in the protocol; "": the model's own
	Version string // version of ringo
	Batch   batcher.Config
	// Requests is the maximum number of requests at a time. Rows and Body limit the rows and the
	// bytes of a request, and Memory the bytes of all bodies together.
	Requests, Rows int
	Body, Memory   int64
	// Timeout is the maximum duration of a request after the arrival of its body.
	Timeout time.Duration
	// Find returns the file of the checkpoint to serve, and Open loads a file.
	Find func() (string, error)
	Open Open
	// Report receives lines for the user.
	Report func(line string)
}

// Server serves one model. Create it by New.
type Server struct {
	cfg     Config
	stats   *stats
	current atomic.Pointer[served]
	active  atomic.Int64 // requests for predictions
	bodies  atomic.Int64 // bytes of bodies in memory
	ending  atomic.Bool

	mu       sync.Mutex
	rejected fileID // newer checkpoint that cannot replace the model
	reason   string // "": none
}

// New loads the model. ctx must last until Close returns.
func New(ctx context.Context, cfg Config) (*Server, error) {
	s := &Server{cfg: cfg, stats: newStats()}
	path, err := cfg.Find()
	if err != nil {
		return nil, err
	}
	id, err := identify(path)
	if err != nil {
		return nil, err
	}
	m, err := cfg.open(ctx, id, s.stats)
	if err != nil {
		return nil, err
	}
	s.cfg.Name = cmp.Or(cfg.Name, m.predictor.Spec().Name)
	s.current.Store(m)
	return s, nil
}

// Describe describes the model in a line.
func (s *Server) Describe() string {
	m := s.current.Load()
	text := fmt.Sprintf("%s of step %s, %s", m.predictor.Spec().Name, quantity.Group(int(m.step)), m.file)
	if e := m.predictor.Description().Encoder; e != nil {
		text += ", " + e.String()
	}
	return text
}

// Watch checks for a newer checkpoint at an interval, until ctx ends or the model fails. Interval 0
// disables the checks. The error is the failure of the model.
func (s *Server) Watch(ctx context.Context, every time.Duration) error {
	var tick <-chan time.Time
	if every > 0 {
		t := time.NewTicker(every)
		defer t.Stop()
		tick = t.C
	}
	for {
		m := s.current.Load()
		select {
		case <-ctx.Done():
			return nil
		case <-m.ended:
			return fmt.Errorf("the model has ended: %w", m.err)
		case <-tick:
			s.Check(ctx)
		}
	}
}

// Check replaces the model if a newer checkpoint is present. A checkpoint that fails is reported
// once, and the previous model stays in use.
func (s *Server) Check(ctx context.Context) {
	m := s.current.Load()
	path, err := s.cfg.Find()
	id := fileID{path: path}
	if err == nil {
		id, err = identify(path)
	}
	if err == nil && id == m.id {
		s.note(fileID{}, "")
		return
	}
	s.mu.Lock()
	same := s.reason != "" && (err == nil && s.rejected == id || err != nil && s.reason == err.Error())
	s.mu.Unlock()
	if same {
		return
	}
	var newer *served
	if err == nil {
		newer, err = s.cfg.open(ctx, id, s.stats)
	}
	if err == nil {
		if err = m.compatible(newer); err != nil {
			newer.retire()
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return
		}
		s.note(id, err.Error())
		s.stats.count(metrics.ServeSwaps, "failed")
		s.cfg.Report(fmt.Sprintf("%s cannot replace %s, which continues: %v", cmp.Or(id.path, "the newest checkpoint"), m.file, err))
		return
	}
	s.current.Store(newer)
	m.retire()
	s.note(fileID{}, "")
	s.stats.count(metrics.ServeSwaps, "swapped")
	s.cfg.Report(fmt.Sprintf("%s of step %s replaces %s", newer.file, quantity.Group(int(newer.step)), m.file))
}

// note notes the newer checkpoint that failed.
func (s *Server) note(id fileID, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rejected, s.reason = id, reason
}

func (s *Server) failed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reason
}

// use returns the model for a request; call release afterwards. After Close it returns false.
func (s *Server) use() (*served, bool) {
	for {
		m := s.current.Load()
		if m.use() {
			return m, true
		}
		if s.current.Load() == m {
			return nil, false
		}
	}
}

// End rejects further requests: clients of open connections get 503.
func (s *Server) End() { s.ending.Store(true) }

// Close ends the model, after all requests, and waits until its memory is free.
func (s *Server) Close() error {
	m := s.current.Load()
	m.retire()
	<-m.ended
	return m.err
}

//go:embed assets/page.html
var page []byte

// Register adds the routes to a site. With a token, health and metrics alone need none.
func (s *Server) Register(site *httpguard.Site, token bool) {
	handle := site.Public
	if token {
		handle = site.Handle
	}
	handle("/{$}", only(http.MethodGet, s.page))
	handle("/model", only(http.MethodGet, s.describe))
	handle("/predict", only(http.MethodPost, s.timed(s.predict)))
	handle("/v2", only(http.MethodGet, s.metadata))
	for _, version := range []string{"", "/versions/{version}"} {
		model := "/v2/models/{name}" + version
		handle(model, only(http.MethodGet, s.named(s.modelMetadata)))
		handle(model+"/ready", only(http.MethodGet, s.named(s.modelReady)))
		handle(model+"/infer", only(http.MethodPost, s.named(s.timed(s.infer))))
	}
	handle("/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, fmt.Errorf("%s: no such path: want /predict, /v2, /model or /", httpguard.Quote(r.URL.Path)))
	}))
	site.Public("/v2/health/live", only(http.MethodGet, func(w http.ResponseWriter, _ *http.Request) { answer(w, map[string]bool{"live": true}) }))
	site.Public("/v2/health/ready", only(http.MethodGet, s.ready))
	site.Public("GET "+scrape.Path, scrape.Handler(func() []scrape.Sample { return s.stats.samples(s.gauges()) }, metrics.OfServing))
}

// gauges returns the values of the moment.
func (s *Server) gauges() map[metrics.ID]float64 {
	m := s.current.Load()
	return map[metrics.ID]float64{
		metrics.ServeQueue: float64(m.queue.Waiting()), metrics.ServeActive: float64(s.active.Load()),
		metrics.ServeStep: float64(m.step), metrics.ServeAge: time.Since(m.id.time).Seconds(),
	}
}

// isTimeout reports whether an error is the end of a connection's time.
func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
