package dashboard

import (
	"bufio"
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/plot"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/reportcmd"
	"github.com/ringo-ml/ringo/internal/httpguard"
)

// assets are the page's HTML, style and script; package plot has the charts'.
//
//go:embed assets
var assets embed.FS

// files are the served files by path, with text to be inserted before each.
var files = map[string]struct{ name, kind, before string }{
	"/{$}":      {"assets/page.html", "text/html; charset=utf-8", ""},
	"/page.js":  {"assets/page.js", "text/javascript; charset=utf-8", plot.Script()},
	"/page.css": {"assets/page.css", "text/css; charset=utf-8", plot.Style()},
}

// policy restricts the browser to this server, and to scripts in the page's files. It allows the
// inline style and script of the report that replaces the page at the end.
var policy = "default-src 'none'; script-src 'self' " + reportcmd.ScriptSource() + "; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const (
	paintEvery  = time.Second
	writeTime   = 10 * time.Second // maximum time for a browser to take an update
	mostViewers = 32
	// farewell is the time for browsers to take the report of an ended job.
	farewell = 3 * time.Second
	mostLine = 16 << 20 // maximum bytes of a line from an Exporter
)

type site struct {
	hub     *Collector
	web     *httpguard.Site // nil: only on this user's socket
	stop    chan struct{}
	painter sync.WaitGroup

	mu      sync.Mutex
	viewers map[chan struct{}]bool // each channel has capacity one
	frame   frame
	streams sync.WaitGroup
}

type frame struct {
	parts  []painted
	ended  bool
	report []byte // report of an ended job; empty without a run
}

// painted is a part of the page: the head, or a panel.
type painted struct {
	event   string
	text    []byte // text as JSON
	version uint64 // number of changes
}

// Serve registers the dashboard's routes at a site that does not listen yet, and routes to
// processes with sockets next to the Collector's. Close ends the goroutines started by Serve.
func (h *Collector) Serve(at *httpguard.Site) {
	s := &site{hub: h, web: at, stop: make(chan struct{}), viewers: map[chan struct{}]bool{}}
	h.site = s
	for path, f := range files {
		s.handle("GET "+path, s.file(f.name, f.kind, f.before))
	}
	s.handle("GET /events", s.events)
	s.handle("GET /state", answer(h.snapshot))
	s.handle("GET /status", answer(h.Status))
	at.Public("GET /healthz", http.HandlerFunc(s.health))
	at.HandleLocal("GET /debug/pprof/", Profiles())
	at.Public("GET /servers/{number}/metrics", h.forward("server"))
	at.Handle("GET /servers/{number}/", h.forward("server"))
	at.HandleLocal("POST /servers/{number}/", h.forward("server"))
	at.HandleLocal("GET /ranks/{number}/debug/pprof/", h.forward("rank"))
	s.painter.Go(s.paint)
	s.painter.Go(func() { h.lookAll(s.stop) })
}

// handle registers a route with the security policy.
func (s *site) handle(pattern string, answer http.HandlerFunc) {
	s.web.Handle(pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		answer(w, r)
	}))
}

// health answers probes, with 503 for a failed job.
func (s *site) health(w http.ResponseWriter, _ *http.Request) {
	s.hub.mu.Lock()
	state := s.hub.state
	s.hub.mu.Unlock()
	if state == "failed" {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = io.WriteString(w, state+"\n")
}

// Address returns the interval of reports and the socket, for Dial, or "" without a socket.
func (h *Collector) Address() string {
	if h.socket == "" {
		return ""
	}
	return fmt.Sprint(h.every(), " ", h.socket)
}

// every returns the interval of the ranks' reports, longer without a page.
func (h *Collector) every() time.Duration {
	if h.site == nil {
		return slowBeat
	}
	return beatEvery
}

// Close sends the job's end to browsers, and replaces the page by the run's report.
func (h *Collector) Close(err error) {
	if h == nil {
		return
	}
	h.look() // a last sample, for ranks of this process
	h.end(err)
	defer h.closeLocal()
	s := h.site
	if s == nil {
		return
	}
	close(s.stop)
	s.painter.Wait() // no viewer enters after the last frame
	gone := make(chan struct{})
	go func() { s.streams.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-time.After(farewell):
	}
}

func (s *site) file(name, kind, before string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		b, err := assets.ReadFile(name)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, before+string(b)) // the requesting client may be gone
	}
}

// take reads a rank's reports until the end.
func (s *site) take(w http.ResponseWriter, r *http.Request) {
	defer httpguard.Stay(w, r)()
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, mostLine)
	for lines.Scan() {
		s.hub.Add(lines.Bytes())
	}
	// After other errors the rank has ended in some way: its reports stay valid.
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		http.Error(w, fmt.Sprintf("a line of more than %d bytes", mostLine), http.StatusBadRequest)
	}
}

// snapshot is the page's data.
type snapshot struct {
	Head   head        `json:"head"`
	Panels []panelData `json:"panels"`
}

func (h *Collector) snapshot() (out snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	out.Head = h.head()
	for _, p := range panels {
		out.Panels = append(out.Panels, h.show(p))
	}
	return out
}

func (s *site) watched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.viewers) > 0
}

// paint draws frames while the page has viewers, and a last frame.
func (s *site) paint() {
	tick := time.NewTicker(paintEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if s.watched() {
				s.draw(false)
			}
		case <-s.stop:
			s.draw(true)
			return
		}
	}
}

// draw draws the next frame, and wakes the viewers.
func (s *site) draw(last bool) {
	snap := s.hub.snapshot()
	texts := [][]byte{encoded(snap.Head)}
	events := []string{"head"}
	for _, f := range snap.Panels {
		texts, events = append(texts, encoded(f)), append(events, "panel")
	}
	var report []byte
	if last {
		report = s.hub.report()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frame.ended {
		return
	}
	old := s.frame.parts
	s.frame = frame{ended: last, report: report}
	for i, text := range texts {
		p := painted{events[i], text, 1}
		if i < len(old) {
			if p.version = old[i].version; !bytes.Equal(old[i].text, text) {
				p.version++
			}
		}
		s.frame.parts = append(s.frame.parts, p)
	}
	for wake := range s.viewers {
		select {
		case wake <- struct{}{}:
		default: // the viewer has not read the last frame, and will read this frame instead
		}
	}
}

// encoded returns the JSON of v, one of this package's types.
func encoded(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return []byte("null")
	}
	return b
}

// enter adds a viewer, unless the limit is reached or the job has ended.
func (s *site) enter() (wake chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.frame.ended:
		return nil, errors.New("the job has ended")
	case len(s.viewers) >= mostViewers:
		return nil, fmt.Errorf("%d browsers look at this job: close one", mostViewers)
	}
	wake = make(chan struct{}, 1)
	s.viewers[wake] = true
	s.streams.Add(1)
	return wake, nil
}

func (s *site) leave(wake chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.viewers, wake)
	s.streams.Done()
}

// events sends changes of the page. A slow browser gets only the newest state of each part; a
// browser that stops reading is disconnected, and gets the whole page when it reconnects.
func (s *site) events(w http.ResponseWriter, r *http.Request) {
	wake, err := s.enter()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer s.leave(wake)
	defer httpguard.Stay(w, r)()
	w.Header().Set("Content-Type", "text/event-stream")
	// The response ends with the connection: browsers ignore the last events of a chunked stream
	// without its end, which is only sent after this function returns.
	w.Header().Set("Transfer-Encoding", "identity")
	s.draw(false)
	conn, seen := http.NewResponseController(w), map[int]uint64{}
	for {
		select {
		case <-r.Context().Done():
			return
		case <-wake:
		}
		s.mu.Lock()
		now := s.frame
		s.mu.Unlock()
		_ = conn.SetWriteDeadline(time.Now().Add(writeTime)) // connections without deadlines return an error
		if err := errors.Join(now.send(w, seen), conn.Flush()); err != nil || now.ended {
			return
		}
	}
}

func (f frame) send(w io.Writer, seen map[int]uint64) error {
	var b bytes.Buffer
	for i, p := range f.parts {
		if seen[i] != p.version {
			seen[i] = p.version
			fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", p.event, p.text)
		}
	}
	if f.ended {
		fmt.Fprintf(&b, "event: end\ndata: %s\n\n", encoded(string(f.report)))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// report returns the page of `ringo report` for the run, or nil without a run.
func (h *Collector) report() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	var notes []string
	for _, f := range h.faults {
		notes = append(notes, f.at.Format(time.TimeOnly)+" "+f.text)
	}
	var b bytes.Buffer
	if err := reportcmd.Write(&b, h.log, notes); err != nil {
		return nil
	}
	return b.Bytes()
}
