package service

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/ps/service/fake"
)

// Connections that say nothing, however many, take no more descriptors than there is room for, keep nobody out,
// and do not end an order under way.
func TestCrowdAtTheSite(t *testing.T) {
	leakcheck.Check(t)
	const most = 8
	s := openSite(t, func(s *site) { s.most, s.stay, s.begun = most, make(chan struct{}), make(chan struct{}, 1) })
	slow := make(chan string, 1)
	go func() { slow <- s.send(t, s.fill("POST /save HTTP/1.1\r\n"+ours+"\r\n", "")) }()
	<-s.begun // before, its connection is one of the crowd
	idle := func(n int) (out []net.Conn) {
		for i := range n {
			c, err := net.Dial("tcp", s.addr)
			must(t, err)
			t.Cleanup(func() { _ = c.Close() })
			if i%3 > 0 {
				_, _ = io.WriteString(c, "GET /health HTTP/1.1\r\nHost: localhost\r\n"[:10*(i%3)])
			}
			out = append(out, c)
		}
		return out
	}
	strangers := idle(200)
	for range 5 {
		if got := s.send(t, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); got != "200" {
			t.Errorf("in the crowd: status %s", got)
		}
	}
	open := 0
	for _, c := range strangers {
		must(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		var one [1]byte
		if _, err := c.Read(one[:]); err != nil {
			var e net.Error
			if errors.As(err, &e) && e.Timeout() {
				open++
			}
			continue
		}
	}
	if open > most {
		t.Errorf("%d silent connections are kept, want %d at most", open, most)
	}
	close(s.stay)
	if got := <-slow; got != "200" || s.did() != 1 {
		t.Errorf("the order that was under way: status %s, lines %q", got, s.said(""))
	}
}

// Who says nothing, or half of something, or does not read, is cut off; an order may take its time.
func TestTimesAtTheSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n fake.Net
		l := n.Listen("site")
		web := NewWebServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				_, _, err := atLeisure(w, r, func() (any, string, error) {
					select {
					case <-r.Context().Done():
					case <-time.After(10 * time.Minute):
					}
					return nil, "", r.Context().Err()
				})
				if err != nil {
					t.Errorf("the order's context: %v", err)
				}
			}
			answer(w, 200, strings.Repeat("x", 1<<20))
		}))
		ended := make(chan struct{})
		go func() { defer close(ended); _ = web.Serve(NewCrowd(l, 4)) }()
		dial := func(say string) net.Conn {
			c, err := n.Dial(t.Context(), "site")
			must(t, err)
			_, err = io.WriteString(c, say)
			must(t, err)
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
		time.Sleep(2 * answerTime) // it reads nothing of the answer
		cut("does not read", c, time.Second)
		c = dial("POST /slow" + request)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		must(t, err)
		if b, err := io.ReadAll(res.Body); err != nil || len(b) < 1<<20 {
			t.Errorf("an order of ten minutes: %d bytes, %v", len(b), err)
		}
		_ = c.Close()
		_ = web.Close()
		<-ended
	})
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
		g := newGuard(Admin{Address: given})
		for host, want := range hosts {
			r, err := http.NewRequestWithContext(contextAt(t, at), "GET", "http://x/health", nil)
			must(t, err)
			if r.Host = host; g.knows(r) != want {
				t.Errorf("--ps-http %s, Host %s: %v, want %v", given, host, !want, want)
			}
		}
	}
}

// contextAt is that of a request which came at an address.
func contextAt(t *testing.T, at net.Addr) context.Context {
	return context.WithValue(t.Context(), http.LocalAddrContextKey, at)
}

// Trainers' port: strangers beyond those that there is room for are sent away.
func TestCrowdAtThePort(t *testing.T) {
	leakcheck.Check(t)
	const most = 8
	w := start(t, 1, func(c *Config, _ *fake.Config) { c.Strangers = most })
	var strangers []net.Conn
	for range 2000 {
		c, err := w.net.Dial(t.Context(), "server")
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		strangers = append(strangers, c)
	}
	p, _ := w.join(hello(0, 1))
	open := 0
	for _, c := range strangers {
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) // an error where the other end has closed
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			open++
		}
	}
	if open > most {
		t.Errorf("%d silent connections are kept, want %d at most", open, most)
	}
	p.leaves(1)
	must(t, w.end())
}
