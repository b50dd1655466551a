package httpguard

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/internal/leakcheck"
)

// Public routes need no token, all others need it in the path or in a header, and other hosts and origins are rejected
// in both cases, with one line for each reason.
func TestSiteHasOneRule(t *testing.T) {
	leakcheck.Check(t)
	const token = "0123456789abcdef"
	var mu sync.Mutex
	var lines []string
	s, err := NewSite(":0", token, func(line string) { mu.Lock(); defer mu.Unlock(); lines = append(lines, line) })
	if err != nil {
		t.Fatal(err)
	}
	shown := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "shown "+r.Method+" "+r.URL.Path)
	})
	s.Public("GET /healthz", shown)
	s.Handle("GET /state", shown)
	s.HandleLocal("POST /save", shown)
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, c := range []struct {
		method, path, header, value string
		status                      int
	}{
		{"GET", "/healthz", "", "", 200},
		{"GET", "/" + token + "/healthz", "", "", 200},
		{"GET", "/state", "Authorization", "Bearer " + token, 200},
		{"GET", "/" + token + "/state", "", "", 200},
		{"POST", "/save", "Authorization", "Bearer " + token, 200},
		{"GET", "/none", "Authorization", "Bearer " + token, 404},
		{"GET", "/save", "Authorization", "Bearer " + token, 405},
		{"GET", "/state", "", "", 403},
		{"POST", "/healthz", "", "", 403},
		{"POST", "/save", "", "", 403},
		{"POST", "/save", "Authorization", "Bearer " + token[1:], 403},
		{"GET", "/healthz/../state", "", "", 403},
		{"GET", "//state", "", "", 403},
		{"GET", "/healthz", "Host", "evil.example", 403},
		{"GET", "/healthz", "Origin", "http://evil.example", 403},
		{"POST", "/" + token + "/save", "Sec-Fetch-Site", "cross-site", 403},
		{"POST", "/" + token + "/save", "Host", "evil.example:80", 403},
	} {
		r, err := http.NewRequest(c.method, "http://"+s.At()+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.header == "Host" {
			r.Host = c.value
		} else if c.header != "" {
			r.Header.Set(c.header, c.value)
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != c.status || (c.status == 200) != strings.HasPrefix(string(body), "shown "+c.method) {
			t.Errorf("%s %s with %s %s: %d %s, want %d", c.method, c.path, c.header, c.value, res.StatusCode, body, c.status)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(lines) != 3 || !strings.Contains(lines[0], `GET /healthz from 127.0.0.1:`) || !strings.Contains(lines[0], `refused: the request is for the host "evil.example"`) {
		t.Errorf("lines %q", lines)
	}
}

// Commands of another host are rejected, with the token too.
func TestHandleLocalRejectsOtherHosts(t *testing.T) {
	s, err := NewSite("127.0.0.1:0", "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	s.HandleLocal("POST /save", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the command was executed") }))
	for _, from := range []string{"10.0.0.1:4000", "[2001:db8::1]:1", "", "@"} {
		r, w := httptest.NewRequest("POST", "/save", nil), httptest.NewRecorder()
		r.RemoteAddr = from
		s.all.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "own host alone") {
			t.Errorf("%q: %d %s", from, w.Code, w.Body)
		}
	}
}

// An address that is none, or is not available, is an error that names it.
func TestSiteNeedsAnAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for address, want := range map[string]string{"8080": "want HOST:PORT", "": "want HOST:PORT", "127.0.0.1:99999": "want HOST:PORT", l.Addr().String(): "cannot listen at " + l.Addr().String(), "192.0.2.1:0": "cannot listen at 192.0.2.1:0"} {
		s, err := NewSite(address, "x", nil)
		if err == nil {
			err = s.Listen()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", address, err, want)
		}
		s.Close()
	}
}
