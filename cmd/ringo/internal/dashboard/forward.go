package dashboard

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/http/pprof"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/httpguard"
)

// Profiles serves the profiles of this process below /debug/pprof/. A profile takes as long as the
// request says.
func Profiles() http.Handler {
	mux := http.NewServeMux()
	long := func(f http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			defer httpguard.Stay(w, r)()
			// net/http/pprof rejects what takes longer than the server's WriteTimeout, which Stay
			// has lifted.
			f(w, r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{})))
		}
	}
	mux.HandleFunc("GET /debug/pprof/", long(pprof.Index))
	mux.HandleFunc("GET /debug/pprof/profile", long(pprof.Profile))
	mux.HandleFunc("GET /debug/pprof/trace", long(pprof.Trace))
	return mux
}

// socketOf returns the socket of a process of the job, in the folder of the hub's, which this user
// alone can enter.
func socketOf(hub, role string, number int) string {
	return filepath.Join(filepath.Dir(hub), fmt.Sprintf("%s-%d", role, number))
}

// ListenAs listens for the collector at address, as Collector.Address returned it, which forwards
// requests for the process.
func ListenAs(address, role string, number int) (net.Listener, error) {
	_, hub, _ := strings.Cut(address, " ")
	path := socketOf(hub, role, number)
	_ = os.Remove(path) // of the process that this one replaces
	return net.Listen("unix", path)
}

// AnswerAs serves h where ListenAs listens. Close ends the server.
func AnswerAs(address, role string, number int, h http.Handler) (*http.Server, error) {
	l, err := ListenAs(address, role, number)
	if err != nil {
		return nil, err
	}
	s := httpguard.NewServer(h)
	go func() { _ = s.Serve(httpguard.NewCrowd(l, httpguard.MaxConnections)) }()
	return s, nil
}

// forward returns a handler that asks a process of this host, by the number in the path, with what
// follows it.
func (h *Collector) forward(role string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		number, err := strconv.ParseUint(r.PathValue("number"), 10, 16)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		defer httpguard.Stay(w, r)()
		prefix := "/" + role + "s/" + r.PathValue("number")
		to := hubAt(socketOf(h.socket, role, int(number)))
		defer to.CloseIdleConnections()
		proxy := &httputil.ReverseProxy{
			Transport: to, FlushInterval: -1,
			Rewrite: func(p *httputil.ProxyRequest) {
				p.SetURL(&url.URL{Scheme: "http", Host: "localhost"})
				p.Out.URL.RawQuery = p.In.URL.RawQuery // with what cannot be parsed, which the process rejects
				h.site.web.Authorize(p.Out)
				p.Out.Header.Del("Origin") // of this site: its guard has checked that
				p.Out.Header.Del("Sec-Fetch-Site")
			},
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
				http.Error(w, fmt.Sprintf("%s %d does not answer: it has ended, is no process of its own, or runs on another host: %v", role, number, err), http.StatusBadGateway)
			},
		}
		http.StripPrefix(prefix, proxy).ServeHTTP(w, r)
	})
}
