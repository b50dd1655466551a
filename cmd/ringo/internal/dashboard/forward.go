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

// Profiles serves this process's profiles below /debug/pprof/, for the requested duration.
func Profiles() http.Handler {
	mux := http.NewServeMux()
	long := func(f http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			defer httpguard.Stay(w, r)()
			// net/http/pprof rejects durations above WriteTimeout, which Stay has removed.
			f(w, r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{})))
		}
	}
	mux.HandleFunc("GET /debug/pprof/", long(pprof.Index))
	mux.HandleFunc("GET /debug/pprof/profile", long(pprof.Profile))
	mux.HandleFunc("GET /debug/pprof/trace", long(pprof.Trace))
	return mux
}

// socketOf returns the socket of a process, in the Collector's folder, for this user only.
func socketOf(hub, role string, number int) string {
	return filepath.Join(filepath.Dir(hub), fmt.Sprintf("%s-%d", role, number))
}

// ListenAs listens for requests that the Collector at address, from Collector.Address, forwards.
func ListenAs(address, role string, number int) (net.Listener, error) {
	_, hub, _ := strings.Cut(address, " ")
	path := socketOf(hub, role, number)
	_ = os.Remove(path) // socket of a predecessor of this process
	return net.Listen("unix", path)
}

// AnswerAs serves h on the listener of ListenAs. Close ends the server.
func AnswerAs(address, role string, number int, h http.Handler) (*http.Server, error) {
	l, err := ListenAs(address, role, number)
	if err != nil {
		return nil, err
	}
	s := httpguard.NewServer(h)
	go func() { _ = s.Serve(httpguard.NewCrowd(l, httpguard.MaxConnections)) }()
	return s, nil
}

// forward forwards requests to a process of this host, by number and path.
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
				p.Out.URL.RawQuery = p.In.URL.RawQuery // including parts that cannot be parsed, which the process rejects
				h.site.web.Authorize(p.Out)
				p.Out.Header.Del("Origin") // the hub's guard has checked the header
				p.Out.Header.Del("Sec-Fetch-Site")
			},
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
				http.Error(w, fmt.Sprintf("%s %d does not answer: it has ended, is no process of its own, or runs on another host: %v", role, number, err), http.StatusBadGateway)
			},
		}
		http.StripPrefix(prefix, proxy).ServeHTTP(w, r)
	})
}
