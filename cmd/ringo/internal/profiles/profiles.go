// Package profiles tells a profiler what takes a process's time: the pages of net/http/pprof, for this host alone, below a token.
package profiles

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"

	"github.com/ringo-ml/ringo/internal/hostport"
	"github.com/ringo-ml/ringo/internal/web"
)

// Path is where the profiles lie below the token.
const Path = "debug/pprof/"

// Site serves the profiles of this process. The zero value, and nil, is none.
type Site struct {
	at     string
	server *http.Server
	ended  chan struct{}
}

// Serve serves the profiles of this process at address, HOST:PORT of this host alone (an empty HOST is 127.0.0.1), index ports further on
// unless it is 0, any free one. It returns at once; Close ends it.
func Serve(address string, index int) (*Site, error) {
	host, port, err := hostport.Split(address, 0)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", address, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	if !hostport.Loopback(host) {
		return nil, fmt.Errorf("%q: want an address of this host alone, such as 127.0.0.1", address)
	}
	if port > 0 {
		port += index
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("cannot listen: %w", err)
	}
	token, at := rand.Text(), web.Reach(host, l.Addr())
	guard := web.NewGuard(at, token)
	s := &Site{at: "http://" + at + "/" + token + "/" + Path, ended: make(chan struct{})}
	s.server = web.NewServer(guard.Before(guard.Below(routes()), func(*http.Request, string) {}))
	go func() {
		defer close(s.ended)
		_ = s.server.Serve(web.NewCrowd(l, web.MaxConnections)) // until Close
	}()
	return s, nil
}

// routes are what is answered below the token. A profile takes as long as who asks for it says, and is written behind that: no limit of
// time but theirs holds. That the package's names are among those of http.DefaultServeMux, too, does nothing: nobody serves that.
func routes() http.Handler {
	mux := http.NewServeMux()
	long := func(f http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			defer web.Stay(w, r)()
			// net/http/pprof refuses what takes longer than the server lets an answer take, which Stay has lifted.
			f(w, r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{})))
		}
	}
	mux.HandleFunc("GET /"+Path, long(pprof.Index))
	mux.HandleFunc("GET /"+Path+"profile", long(pprof.Profile))
	mux.HandleFunc("GET /"+Path+"trace", long(pprof.Trace))
	return mux
}

// URL is the address with its token, for `go tool pprof` and browsers.
func (s *Site) URL() string { return s.at }

// Close ends the site, in the middle of a profile, too.
func (s *Site) Close() error {
	if s == nil || s.server == nil {
		return nil
	}
	err := s.server.Close()
	<-s.ended
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
