package httpguard

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/service/fake"
)

// Who says nothing, or half of something, or does not read, is cut off; an order may take its time.
func TestTimesAtTheSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n fake.Net
		l := n.Listen("site")
		site := NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				done := Stay(w, r)
				select {
				case <-r.Context().Done():
					t.Errorf("the order's context: %v", r.Context().Err())
				case <-time.After(10 * time.Minute):
				}
				done()
			}
			_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
		}))
		ended := make(chan struct{})
		go func() { defer close(ended); _ = site.Serve(NewCrowd(l, 4)) }()
		dial := func(say string) net.Conn {
			c, err := n.Dial(t.Context(), "site")
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.WriteString(c, say)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		const request = " HTTP/1.1\r\nHost: localhost\r\n\r\n"
		cut := func(name string, c net.Conn, within time.Duration) {
			t.Helper()
			begun := time.Now()
			_, err := io.Copy(io.Discard, c)
			if took := time.Since(begun); took > within || err != nil {
				t.Errorf("%s: cut off after %v (%v), want at most %v", name, took, err, within)
			}
			_ = c.Close()
		}
		cut("silent", dial(""), 11*time.Second)
		cut("half a header", dial("GET / HTTP/1.1\r\nHos"), 11*time.Second)
		cut("half a body", dial("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc"), time.Minute)
		cut("idle after an answer", dial("GET /"+request), 31*time.Second)
		c := dial("GET /" + request)
		time.Sleep(2 * AnswerTime) // it reads nothing of the answer
		cut("does not read", c, time.Second)
		c = dial("POST /slow" + request)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(res.Body); err != nil || len(b) < 1<<20 {
			t.Errorf("an order of ten minutes: %d bytes, %v", len(b), err)
		}
		_ = c.Close()
		_ = site.Close()
		<-ended
	})
}

// What is no request is closed without an answer, and keeps nobody out.
func TestNoRequest(t *testing.T) {
	if cookies, err := os.ReadFile("/proc/sys/net/ipv4/tcp_syncookies"); err != nil || cookies[0] == '0' {
		t.Skip("it is answered as any other request")
	}
	leakcheck.Check(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	site := NewServer(http.NotFoundHandler())
	crowd, ended := NewCrowd(l, 4), make(chan struct{}) // now: it is to see what comes first with each connection
	go func() { defer close(ended); _ = site.Serve(crowd) }()
	for _, c := range []struct{ say, want string }{
		{"\x16\x03\x01", ""}, {"garbage / HTTP/1.1\r\n\r\n", ""}, {"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "HTTP/1.1 404 "},
	} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(conn, c.say)
		if got, err := io.ReadAll(conn); !strings.HasPrefix(string(got), c.want) || c.want == "" && len(got) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q is answered %q, %v", c.say, got, err)
		}
		_ = conn.Close()
	}
	_ = site.Close()
	<-ended
}

// The hosts that requests may be for, by the address that was given.
func TestHosts(t *testing.T) {
	at := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 5), Port: 8090}
	for given, hosts := range map[string]map[string]bool{
		"127.0.0.1:8090": {"localhost": true, "LocalHost:1": true, "127.9.9.9:80": true, "[::1]:8090": true, "[::1]": true, "[::ffff:127.0.0.1]:8090": true, "10.0.0.5:8090": false, "node": false, "localhost:": false, "[fe80::1%lo]:8090": false},
		"node7:8090":     {"localhost": true, "node7:8090": true, "NODE7:8090": true, "node7": false, "node7:8091": false, "node7.evil:8090": false, "10.0.0.5:8090": false},
		"10.0.0.5:8090":  {"10.0.0.5:8090": true, "10.0.0.5": false, "10.0.0.6:8090": false, "[::ffff:10.0.0.5]:8090": false},
		"10.0.0.5:80":    {"10.0.0.5:80": true, "10.0.0.5": true},
		"0.0.0.0:8090":   {"10.0.0.5:8090": true, "[::ffff:10.0.0.5]:8090": true, "10.0.0.6:8090": false, "0.0.0.0:8090": false, "node7:8090": false, "10.0.0.5:80": false},
		":8090":          {"10.0.0.5:8090": true, "node7:8090": false, ":8090": false},
		"[::]:8090":      {"10.0.0.5:8090": true, "[::]:8090": false},
		"":               {"localhost": true, "10.0.0.5:8090": false},
	} {
		g := NewGuard(given, "")
		for host, want := range hosts {
			r, err := http.NewRequestWithContext(contextAt(t, at), "GET", "http://x/health", nil)
			if err != nil {
				t.Fatal(err)
			}
			if r.Host = host; g.knows(r) != want {
				t.Errorf("given %s, Host %s: %v, want %v", given, host, !want, want)
			}
		}
	}
}

// contextAt is that of a request which came at an address.
func contextAt(t *testing.T, at net.Addr) context.Context {
	return context.WithValue(t.Context(), http.LocalAddrContextKey, at)
}

// What lies below the token is shown to who has it in the address, and to nobody else.
func TestBelow(t *testing.T) {
	const token = "0123456789abcdef"
	shown := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "secret "+r.URL.Path) })
	for _, c := range []struct {
		token, path string
		status      int
		body        string
	}{
		{token, "/" + token + "/", 200, "secret /"},
		{token, "/" + token + "/a/b?c=d", 200, "secret /a/b"},
		{token, "/" + token, 301, ""},
		{token, "/" + token + "0/", 403, ""},
		{token, "/" + token[1:] + "/", 403, ""},
		{token, "//" + token + "/", 403, ""},
		{token, "/x/../" + token + "/", 403, ""},
		{token, "/?token=" + token, 403, ""},
		{token, "/", 403, ""},
		{"", "/", 403, ""},
		{"", "//", 403, ""},
	} {
		r := httptest.NewRequest("GET", "http://localhost"+c.path, nil)
		w := httptest.NewRecorder()
		NewGuard("localhost:80", c.token).Below(shown).ServeHTTP(w, r)
		if body := w.Body.String(); w.Code != c.status || c.body != "" && body != c.body || c.body == "" && strings.Contains(body, "secret") {
			t.Errorf("token %q, %s: status %d, %q, want %d, %q", c.token, c.path, w.Code, body, c.status, c.body)
		}
		if w.Header().Get("Referrer-Policy") != "no-referrer" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v", c.path, w.Header())
		}
	}
}

// A person may follow a link with the token from another site's page; nothing else of other sites' is answered.
func TestFollowedLinks(t *testing.T) {
	const token = "0123456789abcdef"
	g := NewGuard("localhost:80", token)
	h := g.Before(g.Below(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "secret") })), func(*http.Request, string) {})
	followed := map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Sec-Fetch-User": "?1"}
	for name, c := range map[string]struct {
		method, path string
		change       map[string]string
		shown        bool
	}{
		"a link":                {"GET", "/" + token + "/", nil, true},
		"a link within":         {"GET", "/" + token + "/state", nil, true},
		"without the token":     {"GET", "/", nil, false},
		"another token":         {"GET", "/" + token[1:] + "/", nil, false},
		"a frame":               {"GET", "/" + token + "/", map[string]string{"Sec-Fetch-Dest": "iframe"}, false},
		"a script's request":    {"GET", "/" + token + "/", map[string]string{"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, false},
		"an image":              {"GET", "/" + token + "/", map[string]string{"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, false},
		"a script's own window": {"GET", "/" + token + "/", map[string]string{"Sec-Fetch-User": ""}, false},
		"a form":                {"POST", "/" + token + "/", map[string]string{"Origin": "http://evil"}, false},
		"of an origin":          {"GET", "/" + token + "/", map[string]string{"Origin": "http://evil"}, false},
	} {
		r := httptest.NewRequest(c.method, "http://localhost"+c.path, nil)
		for _, all := range []map[string]string{followed, c.change} {
			for k, v := range all {
				r.Header.Set(k, v)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if shown := w.Body.String() == "secret"; shown != c.shown {
			t.Errorf("%s: status %d, %q", name, w.Code, w.Body.String())
		}
	}
}

// Each kind of line is said once, and no more than so many kinds are remembered.
func TestOnce(t *testing.T) {
	var o Once
	said := 0
	for i := range 1000 {
		for range 2 {
			if o.News(strings.Repeat("x", i)) {
				said++
			}
		}
	}
	if said != mostTold || len(o.lines) != mostTold {
		t.Errorf("%d lines, %d remembered", said, len(o.lines))
	}
}

// What Reach gives is let through by a guard of the same host.
func TestReach(t *testing.T) {
	for host, want := range map[string]string{
		"": "127.0.0.1:8090", "0.0.0.0": "127.0.0.1:8090", "::": "127.0.0.1:8090", "node7": "node7:8090", "localhost": "localhost:8090", "10.0.0.5": "10.0.0.5:8090",
		"2001:DB8::1": "[2001:DB8::1]:8090",
	} {
		got := Reach(host, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 5), Port: 8090})
		if got != want {
			t.Errorf("%q: %s, want %s", host, got, want)
		}
		r := httptest.NewRequest("GET", "http://"+got+"/", nil)
		if !NewGuard(net.JoinHostPort(host, "8090"), "").knows(r) {
			t.Errorf("%q: the guard refuses %s", host, got)
		}
	}
}
