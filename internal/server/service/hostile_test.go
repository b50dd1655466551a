package service

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/httpguard"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/message"
)

var update = flag.Bool("update", false, "write testdata/hostile.txt anew")

// ours are the headers of a person's order.
const ours = "Host: HERE\r\nAuthorization: Bearer " + token + "\r\n"

// hostile are requests that a web page, or somebody who has no token, may send: a target, and headers. PATH, HERE and PORT are
// replaced; what is no request of that form is raw.
var hostile = []struct{ name, target, head, body string }{
	{"a person who holds the token", "PATH", ours, ""},
	{"rebinding: the page's own name", "PATH", "Host: evil.example:PORT\r\n", ""},
	{"rebinding, as the page's browser sends it", "PATH", "Host: evil.example:PORT\r\nOrigin: http://evil.example:PORT\r\nSec-Fetch-Site: same-origin\r\n", ""},
	{"rebinding by a page that knows the token", "PATH", "Host: evil.example:PORT\r\nAuthorization: Bearer " + token + "\r\n", ""},
	{"a name that begins as a loopback one", "PATH", "Host: localhost.evil.example:PORT\r\n", ""},
	{"a name that begins as an address", "PATH", "Host: 127.0.0.1.evil.example\r\n", ""},
	{"a name that ends as a loopback one", "PATH", "Host: evil.localhost:PORT\r\n", ""},
	{"a loopback name with a dot", "PATH", "Host: localhost.:PORT\r\n", ""},
	{"another host's address", "PATH", "Host: 192.0.2.1:PORT\r\n", ""},
	{"every address", "PATH", "Host: 0.0.0.0:PORT\r\n", ""},
	{"every address, IPv6", "PATH", "Host: [::]:PORT\r\n", ""},
	{"another address in IPv6's clothes", "PATH", "Host: [::ffff:192.0.2.1]:PORT\r\n", ""},
	{"loopback as a number", "PATH", "Host: 2130706433:PORT\r\n", ""},
	{"loopback, shortened", "PATH", "Host: 127.1:PORT\r\n", ""},
	{"a user before the address", "PATH", "Host: evil.example@127.0.0.1:PORT\r\n", ""},
	{"a port that is none", "PATH", "Host: localhost:99999\r\n", ""},
	{"an empty host", "PATH", "Host: \r\n", ""},
	{"two hosts", "PATH", "Host: localhost\r\nHost: evil.example\r\n", ""},
	{"a host in the target", "http://evil.example:PORTPATH", "Host: HERE\r\n", ""},
	{"another origin", "PATH", ours + "Origin: http://evil.example\r\n", ""},
	{"a page without an origin", "PATH", ours + "Origin: null\r\n", ""},
	{"this host's page of another port", "PATH", ours + "Origin: http://127.0.0.1:1\r\n", ""},
	{"this host's page over TLS", "PATH", ours + "Origin: https://HERE\r\n", ""},
	{"two origins", "PATH", ours + "Origin: http://HERE\r\nOrigin: http://evil.example\r\n", ""},
	{"another site's page", "PATH", ours + "Sec-Fetch-Site: cross-site\r\n", ""},
	{"the same site's page", "PATH", ours + "Sec-Fetch-Site: same-site\r\n", ""},
	{"a site that is no word", "PATH", ours + "Sec-Fetch-Site: whatever\r\n", ""},
	{"a page's form", "PATH", ours + "Origin: http://evil.example\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 6\r\n", "days=1"},
	{"no token", "PATH", "Host: HERE\r\n", ""},
	{"an empty token", "PATH", "Host: HERE\r\nAuthorization: Bearer \r\n", ""},
	{"a wrong token", "PATH", "Host: HERE\r\nAuthorization: Bearer 0123456789abcdee\r\n", ""},
	{"the token's beginning", "PATH", "Host: HERE\r\nAuthorization: Bearer 0123456789abcde\r\n", ""},
	{"the token and more", "PATH", "Host: HERE\r\nAuthorization: Bearer " + token + "0\r\n", ""},
	{"the token as a password", "PATH", "Host: HERE\r\nAuthorization: Basic " + token + "\r\n", ""},
	{"the token in the address", "PATH?token=" + token, "Host: HERE\r\n", ""},
	{"the token as a cookie", "PATH", "Host: HERE\r\nCookie: Authorization=" + token + "\r\n", ""},
	{"two tokens", "PATH", ours + "Authorization: Bearer x\r\n", ""},
	{"another method in a header", "PATH", ours + "X-HTTP-Method-Override: POST\r\n", ""},
	{"a parameter that there is not", "PATH?day=3", ours, ""},
	{"a parameter twice", "PATH?days=1&days=2&delta=true&delta=true", ours, ""},
	{"a parameter cut by a semicolon", "PATH?days=1;x=2", ours, ""},
	{"a parameter that is no text", "PATH?days=%zz", ours, ""},
	{"no day", "PATH?days=0", ours, ""},
	{"days before today", "PATH?days=-1", ours, ""},
	{"days beyond 31 bits", "PATH?days=2147483648", ours, ""},
	{"days beyond 64 bits", "PATH?days=99999999999999999999", ours, ""},
	{"days in hexadecimal", "PATH?days=0x10", ours, ""},
	{"neither true nor false", "PATH?delta=1", ours, ""},
	{"a long parameter", "PATH?days=" + strings.Repeat("1", 200), ours, ""},
	{"JSON", "PATH", ours + "Content-Type: application/json\r\nContent-Length: 10\r\n", `{"days":1}`},
	{"a form of several parts", "PATH", ours + "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 3\r\n", "--x"},
	{"a long body", "PATH", ours + "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 10005\r\n", "days=" + strings.Repeat("1", 10000)},
	{"long headers", "PATH", ours + "X: " + strings.Repeat("x", 20<<10) + "\r\n", ""},
	{"a path that goes up", "/x/..PATH", ours, ""},
	{"a doubled slash", "/PATH", ours, ""},
	{"a longer path", "PATH/", ours, ""},
}

// Whatever a hostile page sends, to any path, is refused, reads too; and what orders were carried out is in the lines. The table
// is read by people: a status that changes is a decision.
func TestHostileRequests(t *testing.T) {
	leakcheck.Check(t)
	site := openSite(t, nil)
	paths := []string{"/health", "/stats", "/save", "/shrink", "/"}
	methods := []string{"GET", "POST"}
	var table strings.Builder
	fmt.Fprintf(&table, "%-45s", "GET and POST of")
	for _, path := range paths {
		fmt.Fprintf(&table, "  %-8s", path)
	}
	for _, h := range hostile {
		fmt.Fprintf(&table, "\n%-45s", h.name)
		for _, path := range paths {
			var got []string
			for _, method := range methods {
				before := site.did()
				status := site.send(t, site.fill(method+" "+h.target+" HTTP/1.1\r\n"+h.head+"Connection: close\r\n\r\n"+h.body, path))
				if mark := site.did() - before; mark > 0 {
					status += "*"
				}
				got = append(got, status)
			}
			fmt.Fprintf(&table, "  %-8s", strings.Join(got, " "))
		}
	}
	for _, raw := range []string{
		"PUT PATH HTTP/1.1\r\n" + ours + "\r\n", "DELETE PATH HTTP/1.1\r\n" + ours + "\r\n", "TRACE PATH HTTP/1.1\r\n" + ours + "\r\n",
		"OPTIONS PATH HTTP/1.1\r\nHost: HERE\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Private-Network: true\r\n\r\n",
		"OPTIONS PATH HTTP/1.1\r\nHost: HERE\r\nOrigin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n\r\n",
		"GET PATH HTTP/1.0\r\n\r\n", "POST PATH HTTP/1.0\r\nAuthorization: Bearer " + token + "\r\n\r\n", "get PATH HTTP/1.1\r\n" + ours + "\r\n",
		"GET PATH HTTP/2.0\r\n" + ours + "\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", "GET PATH\r\n\r\n",
	} {
		name, _, _ := strings.Cut(strings.ReplaceAll(raw, "PATH ", ""), "\r\nX")
		fmt.Fprintf(&table, "\n%-45.45s", strings.Trim(fmt.Sprintf("%q", strings.ReplaceAll(name, ours, "")), `"`))
		for _, path := range paths {
			before := site.did()
			status := site.send(t, site.fill(raw, path))
			if site.did() > before {
				status += "*"
			}
			fmt.Fprintf(&table, "  %-8s", status)
		}
	}
	fmt.Fprint(&table, "\n* an order was carried out\n")
	got := strings.ReplaceAll(table.String(), " \n", "\n")
	for strings.Contains(got, " \n") {
		got = strings.ReplaceAll(got, " \n", "\n")
	}
	const golden = "testdata/hostile.txt"
	if *update {
		must(t, os.WriteFile(golden, []byte(got), 0o666))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if told := len(site.said("refused")); told == 0 {
		t.Error("no refusal was told")
	}
}

// site is a server's handler at an address.
type site struct {
	addr  string
	given string // Admin.Address
	most  int    // connections

	mu    sync.Mutex
	lines []string
	stay  chan struct{} // an order returns when it is closed; nil: at once
	begun chan struct{} // with stay, gets one for each order that has begun
}

// openSite lets a trainer push a row and opens a site; change may alter it first.
func openSite(t *testing.T, change func(s *site)) *site {
	w := start(t, 1, nil)
	p, _ := w.join(hello(0, 1))
	p.pushes(1, 1, 5, 1, 2, 3)
	p.gets(message.TypeAck, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &site{addr: l.Addr().String(), most: httpguard.MaxConnections}
	if change != nil {
		change(s)
	}
	order := func(ctx context.Context) (any, string, error) {
		if s.stay != nil {
			s.begun <- struct{}{}
			select {
			case <-s.stay:
			case <-ctx.Done():
			}
		}
		return "done", "done", ctx.Err()
	}
	pages := httpguard.NewServer(w.server.Handler(Admin{
		Save:    func(ctx context.Context, _ bool) (any, string, error) { return order(ctx) },
		Shrink:  func(ctx context.Context, _ int) (any, string, error) { return order(ctx) },
		Address: s.given, Token: token, Report: func(line string) { s.mu.Lock(); defer s.mu.Unlock(); s.lines = append(s.lines, line) },
	}))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = pages.Serve(httpguard.NewCrowd(l, s.most)) }()
	t.Cleanup(func() {
		_ = pages.Close()
		<-ended
		p.leaves(2)
		must(t, w.end())
	})
	return s
}

func (s *site) said(word string) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.lines {
		if strings.Contains(line, word) {
			out = append(out, line)
		}
	}
	return out
}

// did is how many orders were carried out.
func (s *site) did() int { return len(s.said(": done")) }

func (s *site) fill(text, path string) string {
	_, port, _ := net.SplitHostPort(s.addr)
	return strings.NewReplacer("PATH", path, "HERE", s.addr, "PORT", port).Replace(text)
}

// send sends a request as it is, and returns the answer's status.
func (s *site) send(t *testing.T, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	_, _ = c.Write([]byte(text)) // it may have been refused half-way
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "cut"
	}
	_ = r.Body.Close()
	return fmt.Sprint(r.StatusCode)
}
