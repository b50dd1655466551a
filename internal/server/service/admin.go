package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"strconv"

	"github.com/ringo-ml/ringo/internal/httpguard"
	"github.com/ringo-ml/ringo/internal/usage"
)

// Admin has the functions and metrics that a server offers over HTTP. A nil function is not
// offered. Save and Shrink return the response, and in did a text about their effect for the log.
type Admin struct {
	Stats  func() any                                                             // statistics of the tables
	Save   func(ctx context.Context, delta bool) (out any, did string, err error) // writes a checkpoint
	Shrink func(ctx context.Context, days int) (out any, did string, err error)   // ages and deletes rows
	// Metrics serves Prometheus.
	Metrics http.Handler
	// Address is the HOST:PORT that requests may name in addition to loopback addresses. An empty
	// HOST, 0.0.0.0 or :: means the address that received the request.
	Address string
	// Token authorises POST requests; empty: none is accepted.
	Token string
	// Report receives lines about POST requests and the first rejection of each kind; may be nil.
	Report func(line string)
}

// Stats are a server's counters since its start.
type Stats struct {
	Connections  int64 `json:"connections"` // successful handshakes
	Replaced     int64 `json:"replaced"`    // connections replaced by a newer one of the same session
	Pulls        int64 `json:"pulls"`       // answered pulls
	Parked       int64 `json:"parked"`      // pulls that had to wait
	Changes      int64 `json:"changes"`     // change messages
	RowsPulled   int64 `json:"rows_pulled"`
	RowsPushed   int64 `json:"rows_pushed"`
	BytesRead    int64 `json:"bytes_read"`
	BytesWritten int64 `json:"bytes_written"`
}

// Health is the state of a server.
type Health struct {
	Server   int       `json:"server"`
	Servers  int       `json:"servers"`
	Job      string    `json:"job,omitempty"`
	State    string    `json:"state"`           // "waiting" for a schema, "up", "ending" or "failed"
	Cause    string    `json:"cause,omitempty"` // cause of the last two
	Trainers []Trainer `json:"trainers"`
}

// Health returns the server's state.
func (s *Server) Health() Health {
	h := Health{Server: s.cfg.Index, Servers: s.cfg.Servers, Job: s.cfg.Job, State: "up", Trainers: s.seats.show()}
	if s.ready() == nil {
		h.State = "waiting"
	}
	if f := s.reason(); f != nil {
		h.State, h.Cause = "ending", f.Text
		if f.Reason != 0 {
			h.State = "failed"
		}
	}
	return h
}

// Stats returns the server's counters.
func (s *Server) Stats() Stats {
	n := &s.count
	f := Stats{
		Connections: n.connections.Load(), Replaced: n.replaced.Load(), Pulls: n.pulls.Load(), Parked: n.parked.Load(), Changes: n.changes.Load(),
		RowsPulled: n.rowsPulled.Load(), RowsPushed: n.rowsPushed.Load(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f.BytesRead, f.BytesWritten = n.bytesRead.Load(), n.bytesWritten.Load()
	for c := range s.conns {
		f.BytesRead += c.link.Received()
		f.BytesWritten += c.link.Sent()
	}
	return f
}

// MaxDays is the maximum number of days of one request.
const MaxDays = 36_500

// Handler serves over HTTP, in JSON:
//
//	GET  /healthz  Health, also at /health; status 503 if the server has failed
//	GET  /stats    with the token: Stats, the tables' statistics, and resources of the process
//	GET  /metrics  the same and more for Prometheus, if a.Metrics is set
//	POST /save     writes a checkpoint; with ?delta=true the changes since the last one
//	POST /shrink   ages and deletes rows by a day, or with ?days=2 by two
//
// A POST must come from this host and have a.Token, as "Authorization: Bearer TOKEN". Any request
// that names a foreign host, or comes from a web page of a foreign origin, is rejected. After a
// POST the write deadline of an http.Server restarts.
func (s *Server) Handler(a Admin) http.Handler {
	if a.Report == nil {
		a.Report = func(string) {}
	}
	d := &adminHandler{server: s, admin: a, guard: httpguard.NewGuard(a.Address, a.Token)}
	mux := http.NewServeMux()
	health := d.read(func() (int, any) {
		h := s.Health()
		if h.State == "failed" {
			return http.StatusServiceUnavailable, h
		}
		return http.StatusOK, h
	})
	mux.HandleFunc("GET /health", health)
	mux.HandleFunc("GET /healthz", health)
	mux.HandleFunc("GET /stats", d.private(d.read(func() (int, any) {
		out := struct {
			Service Stats           `json:"service"`
			Tables  any             `json:"tables,omitempty"`
			Process usage.Resources `json:"process"`
		}{Service: s.Stats(), Process: usage.Read()}
		if a.Stats != nil && s.ready() != nil {
			out.Tables = a.Stats()
		}
		return http.StatusOK, out
	})))
	if a.Metrics != nil {
		mux.Handle("GET /metrics", a.Metrics)
	}
	if a.Save != nil {
		mux.HandleFunc("POST /save", d.order("delta", func(ctx context.Context, delta string) (any, string, error) {
			if delta != "" && delta != "true" && delta != "false" {
				return nil, "", badRequest{fmt.Errorf("delta=%s: want true or false", httpguard.Quote(delta))}
			}
			return a.Save(ctx, delta == "true")
		}))
	}
	if a.Shrink != nil {
		mux.HandleFunc("POST /shrink", d.order("days", func(ctx context.Context, text string) (any, string, error) {
			days, err := strconv.Atoi(cmp.Or(text, "1"))
			if err != nil || days < 1 || days > MaxDays {
				return nil, "", badRequest{fmt.Errorf("days=%s: want a number from 1 to %d", httpguard.Quote(text), MaxDays)}
			}
			return a.Shrink(ctx, days)
		}))
	}
	prefix := fmt.Sprintf("/servers/%d", s.cfg.Index) // the paths of a launcher, too
	mux.Handle(prefix+"/", http.StripPrefix(prefix, mux))
	return d.guard.Before(mux, d.tellOnce)
}

// private answers only requests with the token.
func (d *adminHandler) private(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !d.guard.Allows(r) {
			d.refuse(w, r, http.StatusUnauthorized, errors.New("the token is missing: want a header Authorization: Bearer TOKEN, with the token that the job printed at its start"))
			return
		}
		h(w, r)
	}
}

type adminHandler struct {
	server     *Server
	admin      Admin
	guard      httpguard.Guard
	reportOnce httpguard.Once
}

type badRequest struct{ error }

// read handles a request without side effects.
func (d *adminHandler) read(answering func() (int, any)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, err := parameter(w, r, ""); err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		status, out := answering()
		answer(w, status, out)
	}
}

// order handles an authorised POST with at most one parameter, and reports the result.
func (d *adminHandler) order(name string, do func(ctx context.Context, value string) (any, string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		status, err := d.mayOrder(r)
		value := ""
		if err == nil {
			status = http.StatusBadRequest
			value, err = parameter(w, r, name)
		}
		if err != nil {
			d.refuse(w, r, status, err)
			return
		}
		what := r.URL.Path
		if value != "" {
			what += "?" + name + "=" + value
		}
		done := httpguard.Stay(w, r)
		out, did, err := do(r.Context(), value)
		done()
		switch bad := (badRequest{}); {
		case errors.As(err, &bad):
			d.refuse(w, r, http.StatusBadRequest, err)
		case err != nil:
			d.admin.Report(d.server.prefixed("POST %s from %s failed: %v", what, sender(r), err))
			refuse(w, http.StatusInternalServerError, err)
		default:
			d.admin.Report(d.server.prefixed("POST %s from %s: %s", what, sender(r), did))
			answer(w, http.StatusOK, out)
		}
	}
}

// mayOrder returns an error if a POST is not allowed.
func (d *adminHandler) mayOrder(r *http.Request) (status int, err error) {
	switch {
	case !fromThisHost(r):
		return http.StatusForbidden, errors.New("orders are taken from the server's own host alone")
	case !d.guard.Allows(r):
		return http.StatusUnauthorized, errors.New("a request needs the token that the server printed at its start, in a header: Authorization: Bearer TOKEN")
	case d.server.ready() == nil:
		return http.StatusConflict, fmt.Errorf("server %d has no tables yet", d.server.cfg.Index)
	}
	return 0, nil
}

// refuse rejects a POST. It reports every rejection of an authorised client, and otherwise the
// first per host and kind.
func (d *adminHandler) refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	if d.guard.Allows(r) {
		d.logRefusal(r, err.Error())
	} else {
		d.tellOnce(r, err.Error())
	}
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	refuse(w, status, err)
}

func (d *adminHandler) logRefusal(r *http.Request, why string) {
	path := r.URL.EscapedPath()
	d.admin.Report(d.server.prefixed("%s %s from %s refused: %s", r.Method, path[:min(len(path), 100)], sender(r), why))
}

// tellOnce reports each reason once per host.
func (d *adminHandler) tellOnce(r *http.Request, why string) {
	if host, _, _ := net.SplitHostPort(r.RemoteAddr); d.reportOnce.News(host + " " + why) {
		d.logRefusal(r, why)
	}
}

// mostBody is the maximum size of a request's body, in bytes.
const mostBody = 4 << 10

// parameter parses the only parameter that a request may have, in the URL or as a form. A misspelt
// one is an error, because the request would run with the default.
func parameter(w http.ResponseWriter, r *http.Request, name string) (value string, err error) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if r.ContentLength != 0 && kind != "application/x-www-form-urlencoded" {
		return "", fmt.Errorf("a body of type %s: want parameters in the address, or as a form", httpguard.Quote(kind))
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostBody)
	if err := r.ParseForm(); err != nil {
		return "", fmt.Errorf("its parameters: %w", err)
	}
	for given, values := range r.Form {
		if name == "" || given != name || len(values) != 1 || len(values[0]) > 100 {
			return "", fmt.Errorf("parameter %s, %d times: want none%s", httpguard.Quote(given), len(values), orOne(name))
		}
		value = values[0]
	}
	return value, nil
}

func orOne(name string) string {
	if name == "" {
		return ""
	}
	return ", or one short " + name
}

// forwarded reports whether the job's launcher has forwarded a request, over a socket of this user.
func forwarded(r *http.Request) bool {
	at, _ := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
	return at != nil
}

// sender describes the origin of a request.
func sender(r *http.Request) string {
	if forwarded(r) {
		return "the launcher"
	}
	return r.RemoteAddr
}

// fromThisHost reports whether a request came through the loopback interface or the launcher.
func fromThisHost(r *http.Request) bool {
	if forwarded(r) {
		return true
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return err == nil && net.ParseIP(host).IsLoopback()
}

func refuse(w http.ResponseWriter, status int, err error) {
	answer(w, status, map[string]string{"error": err.Error()})
}

func answer(w http.ResponseWriter, status int, v any) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error": "the answer has no JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client may be gone
}
