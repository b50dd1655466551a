package dashboard

import (
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

// assets are the page: HTML, style and script, beside those of its charts (package plot).
//
//go:embed assets
var assets embed.FS

// files are what is served, by path: text, and what stands before it.
var files = map[string]struct{ name, kind, before string }{
	"/{$}":      {"assets/page.html", "text/html; charset=utf-8", ""},
	"/page.js":  {"assets/page.js", "text/javascript; charset=utf-8", plot.Script()},
	"/page.css": {"assets/page.css", "text/css; charset=utf-8", plot.Style()},
}

// policy lets a browser ask nobody but this server, and run nothing but its files and the report
// that takes the page's place, which has its style and its script within it.
var policy = "default-src 'none'; script-src 'self' " + reportcmd.ScriptSource() + "; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const (
	paintEvery  = time.Second
	writeTime   = 10 * time.Second // for a browser to take what changed
	mostViewers = 32
	// farewell is how long a job that has ended waits for browsers to take the report.
	farewell = 3 * time.Second
	mostLine = 16 << 20 // bytes of a line of a feed
)

// site serves a hub.
type site struct {
	hub     *Collector
	web     *httpguard.Site // nil: this user's socket alone
	stop    chan struct{}
	painter sync.WaitGroup

	mu      sync.Mutex
	viewers map[chan struct{}]bool // each has room for one
	frame   frame
	streams sync.WaitGroup
}

// frame is what the page shows at one time.
type frame struct {
	parts  []painted
	ended  bool
	report []byte // of a job that has ended, "" where there was no run
}

// painted is a part of the page: the head, or a panel.
type painted struct {
	event   string
	text    []byte // JSON
	version uint64 // counts its changes
}

// Serve registers the dashboard's routes at a site that does not listen yet, and those of the
// processes below this hub's socket. Close ends what it starts.
func (h *Collector) Serve(at *httpguard.Site) {
	s := &site{hub: h, web: at, stop: make(chan struct{}), viewers: map[chan struct{}]bool{}}
	h.site = s
	for path, f := range files {
		s.handle("GET "+path, s.file(f.name, f.kind, f.before))
	}
	s.handle("GET /events", s.events)
	s.handle("GET /state", s.state)
	s.handle("GET /status", s.status)
	at.Public("GET /healthz", http.HandlerFunc(s.health))
	at.HandleLocal("GET /debug/pprof/", Profiles())
	at.Public("GET /servers/{number}/metrics", h.forward("server"))
	at.Handle("GET /servers/{number}/", h.forward("server"))
	at.HandleLocal("POST /servers/{number}/", h.forward("server"))
	at.HandleLocal("GET /ranks/{number}/debug/pprof/", h.forward("rank"))
	s.painter.Go(s.paint)
	s.painter.Go(func() { h.lookAll(s.stop) })
}

// handle registers a route of the page.
func (s *site) handle(pattern string, answer http.HandlerFunc) {
	s.web.Handle(pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		answer(w, r)
	}))
}

// health answers probes: 503 if the job has failed.
func (s *site) health(w http.ResponseWriter, _ *http.Request) {
	s.hub.mu.Lock()
	state := s.hub.state
	s.hub.mu.Unlock()
	if state == "failed" {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = io.WriteString(w, state+"\n")
}

// Address is what Dial takes, how often ranks are to tell of their steps and where; "" where the
// hub does not answer.
func (h *Collector) Address() string {
	if h.socket == "" {
		return ""
	}
	return fmt.Sprint(h.every(), " ", h.socket)
}

// every is how often ranks tell of their steps: where there is no page often enough for who asks now and then.
func (h *Collector) every() time.Duration {
	if h.site == nil {
		return slowBeat
	}
	return beatEvery
}

// Close tells browsers how the job has ended, and gives them the report of the run in the page's
// place.
func (h *Collector) Close(err error) {
	if h == nil {
		return
	}
	h.look() // once more at ranks of this process
	h.end(err)
	defer h.closeLocal()
	s := h.site
	if s == nil {
		return
	}
	close(s.stop)
	s.painter.Wait() // nobody enters after the last frame
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
		_, _ = io.WriteString(w, before+string(b)) // who asked may be gone
	}
}

// take takes what a rank tells until it ends.
func (s *site) take(w http.ResponseWriter, r *http.Request) {
	defer httpguard.Stay(w, r)()
	if err := eachLine(r.Body, s.hub.Add); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// eachLine hands out whole lines.
func eachLine(from io.Reader, take func([]byte)) error {
	var line []byte
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		for rest := b[:n]; len(rest) > 0; {
			part, after, whole := bytes.Cut(rest, []byte{'\n'})
			if line = append(line, part...); len(line) > mostLine {
				return fmt.Errorf("a line of more than %d bytes", mostLine)
			}
			if rest = after; whole {
				take(line)
				line = line[:0]
			}
		}
		if err != nil {
			return nil // the rank has ended, however: what it told is told
		}
	}
}

// state is the page's figures as JSON, for programs.
func (s *site) state(w http.ResponseWriter, _ *http.Request) {
	b, err := json.Marshal(s.hub.snapshot())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n'))
}

// snapshot is all that the page shows.
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

// watched says that somebody looks.
func (s *site) watched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.viewers) > 0
}

// paint makes frames while somebody looks, and the last one.
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

// draw makes the next frame, and wakes who looks.
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
		default: // it has not read of the last frame yet, and will read of this one in its place
		}
	}
}

// encoded is JSON of our own types.
func encoded(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return []byte("null")
	}
	return b
}

// enter lets somebody look, unless there are too many or the job has ended.
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

// events sends what changes, as it changes. A browser that reads slowly gets what is new when it has read, and none of what it was too
// slow for; one that has stopped to read is cut off, and gets all when it comes again.
func (s *site) events(w http.ResponseWriter, r *http.Request) {
	wake, err := s.enter()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer s.leave(wake)
	defer httpguard.Stay(w, r)()
	w.Header().Set("Content-Type", "text/event-stream")
	// It ends with its connection: browsers pass over the last events of a stream in chunks whose end, which is sent when this has returned,
	// does not come.
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
		_ = conn.SetWriteDeadline(time.Now().Add(writeTime)) // a connection without deadlines has none
		if err := errors.Join(now.send(w, seen), conn.Flush()); err != nil || now.ended {
			return
		}
	}
}

// send writes the parts of a frame that have changed.
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

// report is the page that `ringo report` makes of the run; nil where there was none.
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
