package httpguard

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

// Guard stands before everything that is asked over HTTP. What it is there for: a web page in a browser of this
// host can ask any address that the browser reaches, and by DNS rebinding (a name that first leads to the
// page's own server and then to 127.0.0.1) read the answers, too, as if it were a page of ours. The Host
// that it sends tells: it is the page's name. Orders, and what is not for everybody on this host, need a token
// besides, which no page knows.
type Guard struct {
	host  string // that may be asked for besides loopback addresses, lower case; "" for none
	port  string
	token [sha256.Size]byte // of the token
	has   bool              // there is a token; else nobody holds it
}

// NewGuard lets requests through that are for loopback addresses, or for address, a HOST:PORT. A HOST that is empty, 0.0.0.0 or ::
// stands for the address at which a request came. Nobody holds an empty token.
func NewGuard(address, token string) Guard {
	g := Guard{token: sha256.Sum256([]byte(token)), has: token != ""}
	if host, port, err := net.SplitHostPort(address); err == nil {
		g.host, g.port = strings.ToLower(host), port
	}
	return g
}

// Reach is the HOST:PORT by which this host asks who listens at l and was told to at host: as a Guard of that host knows it. All of this
// host's addresses are the loopback one.
func Reach(host string, l net.Addr) string {
	_, port, _ := net.SplitHostPort(l.String())
	if a, err := netip.ParseAddr(host); host == "" || err == nil && a.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// Before lets requests through to next that no web page of others can have made. Others are refused and told.
func (g Guard) Before(next http.Handler, tell func(r *http.Request, why string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		why := ""
		switch {
		case !g.knows(r):
			why = fmt.Sprintf("the request is for the host %s: ask for localhost or a loopback address%s", Quote(r.Host), g.orItself())
		case foreign(r) && !g.followed(r):
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
func (g Guard) orItself() string {
	if a, err := netip.ParseAddr(g.host); g.host == "" || err == nil && (a.IsLoopback() || a.IsUnspecified()) {
		return ""
	}
	return fmt.Sprintf(", or for %s", net.JoinHostPort(g.host, g.port))
}

// knows tells whether a request is for a loopback address, the address given, or, where that is all of this
// host's, the one at which it came.
func (g Guard) knows(r *http.Request) bool {
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

// followed tells whether a person has followed a link with the token in it from another site's page, such as a chat's: the browser goes there
// with a window of its own, of which that page can read nothing. Whatever the page itself asks for, or shows in a frame, says otherwise, which no
// script can change.
func (g Guard) followed(r *http.Request) bool {
	token, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	h := r.Header
	return r.Method == http.MethodGet && len(h.Values("Origin")) == 0 && g.holds(token) &&
		h.Get("Sec-Fetch-Mode") == "navigate" && h.Get("Sec-Fetch-Dest") == "document" && h.Get("Sec-Fetch-User") == "?1"
}

// Allows tells whether who sent a request holds the token, as "Authorization: Bearer TOKEN".
func (g Guard) Allows(r *http.Request) bool {
	said := r.Header.Values("Authorization")
	if len(said) != 1 {
		return false
	}
	scheme, token, _ := strings.Cut(said[0], " ")
	return g.holds(token) && strings.EqualFold(scheme, "Bearer")
}

// Below serves what lies below the token, as http://HOST:PORT/TOKEN/…: an address that a person opens as it was printed, in which
// links that name no host go on below it, and that programs which know no headers take, too. Without the token it says that one is
// needed, and nothing else.
func (g Guard) Below(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _, below := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		private(w)
		switch {
		case !g.holds(token):
			http.Error(w, "refused: the address needs the token that was printed with it", http.StatusForbidden)
		case !below:
			http.Redirect(w, r, token+"/", http.StatusMovedPermanently)
		default:
			http.StripPrefix("/"+token, next).ServeHTTP(w, r)
		}
	})
}

// private sets the headers of an answer that no browser may store, and whose address no other site
// may get.
func private(w http.ResponseWriter) {
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}

// holds compares with the token. The time that it takes says nothing of it.
func (g Guard) holds(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1 && g.has
}

// Quote is a stranger's word for a person's eyes, cut where it is long.
func Quote(s string) string { return strconv.Quote(s[:min(len(s), 100)]) }

// Once remembers what need not be said twice, and no more than so much: strangers could say much.
type Once struct {
	mu    sync.Mutex
	lines map[string]bool
}

const mostTold = 64

// News tells whether a line of a kind is to be said.
func (t *Once) News(kind string) bool {
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
