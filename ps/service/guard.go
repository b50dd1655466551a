package service

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
)

// guard stands before everything that is asked over HTTP. What it is there for: a web page in a browser of this
// host can ask any address that the browser reaches, and by DNS rebinding (a name that first leads to the
// page's own server and then to 127.0.0.1) read the answers, too, as if it were a page of ours. The Host
// that it sends tells: it is the page's name. Orders need a token besides, which no page knows.
type guard struct {
	host  string // that may be asked for besides loopback addresses, lower case; "" for none
	port  string
	token [sha256.Size]byte // of the token
	has   bool              // there is a token; else no order is taken
}

func newGuard(a Admin) guard {
	g := guard{token: sha256.Sum256([]byte(a.Token)), has: a.Token != ""}
	if host, port, err := net.SplitHostPort(a.Address); err == nil {
		g.host, g.port = strings.ToLower(host), port
	}
	return g
}

// before lets requests through to next that no web page can have made. Others are refused and told.
func (g guard) before(next http.Handler, tell func(r *http.Request, why string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		why := ""
		switch {
		case !g.knows(r):
			why = fmt.Sprintf("the request is for the host %s: ask for localhost or a loopback address%s", short(r.Host), g.orItself())
		case foreign(r):
			why = "a web page of another origin has sent the request"
		default:
			next.ServeHTTP(w, r)
			return
		}
		tell(r, why)
		http.Error(w, "refused: "+why, http.StatusForbidden)
	})
}

// orItself says which other host may be asked for.
func (g guard) orItself() string {
	if a, err := netip.ParseAddr(g.host); g.host == "" || err == nil && (a.IsLoopback() || a.IsUnspecified()) {
		return ""
	}
	return fmt.Sprintf(", or for %s", net.JoinHostPort(g.host, g.port))
}

// knows tells whether a request is for a loopback address, the address given, or, where that is all of this
// host's, the one at which it came.
func (g guard) knows(r *http.Request) bool {
	host, port, ok := splitHost(r.Host)
	if !ok {
		return false
	}
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	if err == nil && a.Unmap().IsLoopback() {
		return true // also through a tunnel from another port
	}
	if port != g.port {
		return false
	}
	if host == g.host && !a.IsUnspecified() {
		return true
	}
	all, bad := netip.ParseAddr(g.host)
	if err != nil || g.host != "" && (bad != nil || !all.IsUnspecified()) {
		return false
	}
	at, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return at != nil && at.AddrPort().Addr().Unmap() == a.Unmap()
}

// splitHost cuts a Host header, in lower case. Port 80 may be left out.
func splitHost(text string) (host, port string, ok bool) {
	host, port = strings.ToLower(text), "80"
	if h, p, err := net.SplitHostPort(host); err == nil {
		host, port = h, p
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return host, port, host != "" && err == nil && n > 0 && !strings.Contains(host, "%")
}

// foreign tells whether a browser says that the request is of another origin than this server's own.
func foreign(r *http.Request) bool {
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "none" && site != "same-origin" {
			return true
		}
	}
	for _, origin := range r.Header.Values("Origin") {
		if !strings.EqualFold(origin, "http://"+r.Host) {
			return true
		}
	}
	return false
}

// allows tells whether who sent a request holds the token. The time that it takes says nothing of it.
func (g guard) allows(r *http.Request) bool {
	said := r.Header.Values("Authorization")
	if len(said) != 1 {
		return false
	}
	scheme, token, _ := strings.Cut(said[0], " ")
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1 && g.has && strings.EqualFold(scheme, "Bearer")
}

// short is a stranger's word for a person's eyes.
func short(s string) string { return strconv.Quote(s[:min(len(s), 100)]) }

// toldOnce remembers what need not be said twice, and no more than so much: strangers could say much.
type toldOnce struct {
	mu    sync.Mutex
	lines map[string]bool
}

const mostTold = 64

// news tells whether a line of a kind is to be said.
func (t *toldOnce) news(kind string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines[kind] || len(t.lines) >= mostTold {
		return false
	}
	if t.lines == nil {
		t.lines = map[string]bool{}
	}
	t.lines[kind] = true
	return true
}
