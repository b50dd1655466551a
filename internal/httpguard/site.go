package httpguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"github.com/ringo-ml/ringo/internal/hostport"
)

// Site is the only HTTP address of a process of a job. Its parts register their routes before
// Listen. All routes except the public ones need the token: below it in the path, or as
// "Authorization: Bearer TOKEN".
type Site struct {
	// Connections is the maximum number of connections. 0 means MaxConnections.
	Connections int

	host    string // configured host; default 127.0.0.1
	port    string
	token   string
	guard   Guard
	public  *http.ServeMux
	all     *http.ServeMux // including public routes
	report  func(line string)
	once    Once
	server  *http.Server
	listen  net.Listener
	serving sync.WaitGroup
}

// NewSite returns a site for address, HOST:PORT. An empty HOST is 127.0.0.1, and port 0 is any free
// one. Report gets a line about each kind of rejected request, once per remote host; it may be nil.
func NewSite(address, token string, report func(line string)) (*Site, error) {
	if _, _, err := hostport.Split(address, 0); err != nil {
		return nil, fmt.Errorf("%q: %w, such as 127.0.0.1:8080, or 0.0.0.0:8080 for all addresses of this host", address, err)
	}
	host, port, _ := net.SplitHostPort(address)
	if host == "" {
		host = "127.0.0.1"
	}
	if report == nil {
		report = func(string) {}
	}
	return &Site{host: host, port: port, token: token, public: http.NewServeMux(), all: http.NewServeMux(), report: report}, nil
}

// Public registers a route that needs no token.
func (s *Site) Public(pattern string, h http.Handler) {
	s.public.Handle(pattern, h)
	s.all.Handle(pattern, h)
}

// Handle registers a route that needs the token.
func (s *Site) Handle(pattern string, h http.Handler) { s.all.Handle(pattern, h) }

// HandleLocal registers a route that needs the token and accepts requests from this host alone.
func (s *Site) HandleLocal(pattern string, h http.Handler) {
	s.Handle(pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !a.Addr().Unmap().IsLoopback() {
			s.reject(r, "accepted from the job's own host alone")
			http.Error(w, "refused: accepted from the job's own host alone", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	}))
}

// Listen opens the address and serves the routes until Close.
func (s *Site) Listen() error {
	l, err := net.Listen("tcp", net.JoinHostPort(s.host, s.port))
	if err != nil {
		return fmt.Errorf("cannot listen at %s: %w", net.JoinHostPort(s.host, s.port), err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	s.listen, s.guard = l, NewGuard(net.JoinHostPort(s.host, port), s.token)
	s.server = NewServer(s.guard.Before(http.HandlerFunc(s.route), s.reject))
	s.serving.Go(func() {
		if err := s.server.Serve(NewCrowd(l, cmp.Or(s.Connections, MaxConnections))); !errors.Is(err, http.ErrServerClosed) {
			s.report(fmt.Sprintf("HTTP at %s has ended: %v", l.Addr(), err))
		}
	})
	return nil
}

// route serves a public route, or any route for a request with the token.
func (s *Site) route(w http.ResponseWriter, r *http.Request) {
	if _, pattern := s.public.Handler(r); pattern != "" {
		s.public.ServeHTTP(w, r)
		return
	}
	if s.guard.Allows(r) {
		private(w)
		s.all.ServeHTTP(w, r)
		return
	}
	s.guard.Below(s.all).ServeHTTP(w, r)
}

func (s *Site) reject(r *http.Request, why string) {
	if host, _, _ := net.SplitHostPort(r.RemoteAddr); s.once.News(host + " " + why) {
		path := r.URL.EscapedPath()
		s.report(fmt.Sprintf("%s %s from %s refused: %s", r.Method, path[:min(len(path), 100)], r.RemoteAddr, why))
	}
}

// At returns the HOST:PORT by which this host reaches the site.
func (s *Site) At() string { return Reach(s.host, s.listen.Addr()) }

// URL returns the address of the private routes; shown, unless empty, replaces the token.
func (s *Site) URL(shown string) string {
	if shown == "" {
		shown = s.token
	}
	return "http://" + s.At() + "/" + shown + "/"
}

// Authorize adds the token to a request for a process of the same job.
func (s *Site) Authorize(r *http.Request) { r.Header.Set("Authorization", "Bearer "+s.token) }

// Exposed reports whether other hosts can reach the site.
func (s *Site) Exposed() bool {
	a, err := netip.ParseAddrPort(s.listen.Addr().String())
	return err != nil || !a.Addr().IsLoopback()
}

// Shutdown closes the address, waits until the requests have their responses, and ends the site. At
// the end of ctx it returns the error of ctx; Close then ends the site.
func (s *Site) Shutdown(ctx context.Context) error {
	err := s.server.Shutdown(ctx)
	if err == nil {
		s.serving.Wait()
	}
	return err
}

// Close ends the site, even during a response. It has no effect without Listen.
func (s *Site) Close() {
	if s != nil && s.server != nil {
		_ = s.server.Close()
		s.serving.Wait()
	}
}
