package service

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/ringo-ml/ringo/internal/usage"
)

// Admin is what a person may ask of a server besides how it is. A nil function is not
// offered.
type Admin struct {
	Stats  func() any                                         // of the tables
	Save   func(ctx context.Context, delta bool) (any, error) // a checkpoint
	Shrink func(ctx context.Context, days int) (any, error)   // decay and deletion
	Allow  func(r *http.Request) bool                         // whether a POST is allowed; nil: from this host
}

// Figures are what a server has done since it began.
type Figures struct {
	Connections  int64 `json:"connections"` // whose handshake succeeded
	Replaced     int64 `json:"replaced"`    // connections, by others of the same lane
	Pulls        int64 `json:"pulls"`       // answered
	Parked       int64 `json:"parked"`      // pulls that had to wait
	Changes      int64 `json:"changes"`     // messages
	RowsPulled   int64 `json:"rows_pulled"`
	RowsPushed   int64 `json:"rows_pushed"`
	BytesRead    int64 `json:"bytes_read"`
	BytesWritten int64 `json:"bytes_written"`
}

// Health is how a server is.
type Health struct {
	Server   int       `json:"server"`
	Servers  int       `json:"servers"`
	Job      string    `json:"job,omitempty"`
	State    string    `json:"state"`           // "waiting" for a schema, "up", "ending" or "failed"
	Cause    string    `json:"cause,omitempty"` // of the last two
	Trainers []Trainer `json:"trainers"`
}

// Health returns how the server is.
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

// Figures returns what the server has done.
func (s *Server) Figures() Figures {
	n := &s.count
	f := Figures{
		Connections: n.connections.Load(), Replaced: n.replaced.Load(), Pulls: n.pulls.Load(), Parked: n.parked.Load(), Changes: n.changes.Load(),
		RowsPulled: n.rowsPulled.Load(), RowsPushed: n.rowsPushed.Load(), BytesRead: n.bytesRead.Load(), BytesWritten: n.bytesWritten.Load(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		f.BytesRead += c.link.Received()
		f.BytesWritten += c.link.Sent()
	}
	return f
}

// Handler serves over HTTP, in JSON:
//
//	GET  /health   Health; status 503 where the server has failed
//	GET  /stats    Figures, the tables' statistics, and what the process takes
//	POST /save     a checkpoint; with ?delta=true what changed since the last one
//	POST /shrink   decay and deletion of rows; with ?days=2 as of so many, else of one
//
// POSTs that a web page of another origin makes a browser send are refused, and those
// that a.Allow does not allow.
func (s *Server) Handler(a Admin) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		h := s.Health()
		status := http.StatusOK
		if h.State == "failed" {
			status = http.StatusServiceUnavailable
		}
		answer(w, status, h)
	})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		out := struct {
			Service Figures       `json:"service"`
			Tables  any           `json:"tables,omitempty"`
			Process usage.Figures `json:"process"`
		}{Service: s.Figures(), Process: usage.Read()}
		if a.Stats != nil && s.ready() != nil {
			out.Tables = a.Stats()
		}
		answer(w, http.StatusOK, out)
	})
	act := func(path string, do func(r *http.Request) (any, error)) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { s.act(w, r, a.Allow, do) })
	}
	if a.Save != nil {
		act("/save", func(r *http.Request) (any, error) {
			delta, err := strconv.ParseBool(r.FormValue("delta"))
			if err != nil && r.FormValue("delta") != "" {
				return nil, badRequest{fmt.Errorf("delta=%q: want true or false", r.FormValue("delta"))}
			}
			return a.Save(r.Context(), delta)
		})
	}
	if a.Shrink != nil {
		act("/shrink", func(r *http.Request) (any, error) {
			days, err := strconv.Atoi(cmp.Or(r.FormValue("days"), "1"))
			if err != nil || days < 1 {
				return nil, badRequest{fmt.Errorf("days=%q: want a number from 1", r.FormValue("days"))}
			}
			return a.Shrink(r.Context(), days)
		})
	}
	return http.NewCrossOriginProtection().Handler(mux)
}

// badRequest is an error of who asked.
type badRequest struct{ error }

func (s *Server) act(w http.ResponseWriter, r *http.Request, allow func(*http.Request) bool, do func(*http.Request) (any, error)) {
	if allow == nil {
		allow = fromThisHost
	}
	if !allow(r) {
		refuse(w, http.StatusForbidden, fmt.Errorf("%s is not allowed from %s", r.URL.Path, r.RemoteAddr))
		return
	}
	if s.ready() == nil {
		refuse(w, http.StatusConflict, fmt.Errorf("server %d has no tables yet", s.cfg.Index))
		return
	}
	out, err := do(r)
	switch err := err.(type) {
	case nil:
		answer(w, http.StatusOK, out)
	case badRequest:
		refuse(w, http.StatusBadRequest, err)
	default:
		refuse(w, http.StatusInternalServerError, err)
	}
}

// fromThisHost tells whether a request came over the loopback interface.
func fromThisHost(r *http.Request) bool {
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
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // who asked may be gone
}
