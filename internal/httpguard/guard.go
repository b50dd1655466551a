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

// Guard checks all HTTP requests. A web page in a browser of this host can send requests to any
// reachable address, and by DNS rebinding (a name for the page's server, later for 127.0.0.1) also
// read the responses. The Host header, the page's name, reveals such requests. Requests with
// effects or private data additionally need a token, unknown to pages.
type Guard struct {
	host  string // allowed besides loopback addresses, lower case; "" for none
	port  string
	token [sha256.Size]byte // hash of the token
	has   bool              // false rejects all tokens
}

// NewGuard returns a Guard that accepts requests for loopback addresses, or for address, a
// HOST:PORT. An empty HOST, 0.0.0.0 or :: means the address that received the request. With an
// empty token no request is authorised.
func NewGuard(address, token string) Guard {
	g := Guard{token: sha256.Sum256([]byte(token)), has: token != ""}
	if host, port, err := net.SplitHostPort(address); err == nil {
		g.host, g.port = strings.ToLower(host), port
	}
	return g
}

// Reach returns the HOST:PORT for requests from this host to a listener at l, configured with host
// and a Guard. An unspecified host becomes the loopback address.
func Reach(host string, l net.Addr) string {
	_, port, _ := net.SplitHostPort(l.String())
	if a, err := netip.ParseAddr(host); host == "" || err == nil && a.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// Before rejects and reports requests perhaps from a foreign web page, and passes others to next.
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

// orItself names the other allowed host.
func (g Guard) orItself() string {
	if a, err := netip.ParseAddr(g.host); g.host == "" || err == nil && (a.IsLoopback() || a.IsUnspecified()) {
		return ""
	}
	return fmt.Sprintf(", or for %s", net.JoinHostPort(g.host, g.port))
}

// knows reports whether a request is for a loopback address, the configured address or, if
// unspecified, the receiving address.
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
		return true // perhaps through a tunnel from another port
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

// splitHost splits a Host header, in lower case. Port 80 is the default.
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

// foreign reports whether a browser marks the request as cross-origin.
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

// followed reports whether a user has followed a link with the token from another site, such as a
// chat: the browser navigates in a window unreadable for the site. Requests by the site, or for a
// frame, have other headers, unchangeable by scripts.
func (g Guard) followed(r *http.Request) bool {
	token, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	h := r.Header
	return r.Method == http.MethodGet && len(h.Values("Origin")) == 0 && g.holds(token) &&
		h.Get("Sec-Fetch-Mode") == "navigate" && h.Get("Sec-Fetch-Dest") == "document" && h.Get("Sec-Fetch-User") == "?1"
}

// Allows reports whether a request has the token, as "Authorization: Bearer TOKEN".
func (g Guard) Allows(r *http.Request) bool {
	said := r.Header.Values("Authorization")
	if len(said) != 1 {
		return false
	}
	scheme, token, _ := strings.Cut(said[0], " ")
	return g.holds(token) && strings.EqualFold(scheme, "Bearer")
}

// Below serves next below the token, as http://HOST:PORT/TOKEN/…: users open the printed address,
// relative links stay below it, and clients without headers can use it. Without the token it
// returns only an error.
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

// private sets headers against stored responses and addresses in referrers.
func private(w http.ResponseWriter) {
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}

// holds compares the token in constant time.
func (g Guard) holds(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1 && g.has
}

// Quote returns untrusted text for display, quoted and truncated.
func Quote(s string) string { return strconv.Quote(s[:min(len(s), 100)]) }

// Once limits repeated reports, and their total number, because untrusted clients could cause many.
type Once struct {
	mu    sync.Mutex
	lines map[string]bool
}

const mostTold = 64

// News reports whether to report a line of a kind.
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
