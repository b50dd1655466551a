package service

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/service/fake"
)

// Connections that say too little, however many, take no more descriptors than there is room for, keep nobody out,
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
			_, _ = io.WriteString(c, "GET /health HTTP/1.1\r\nHost: localhost\r\n"[:1+10*(i%3)]) // of one that says nothing at all the system does not tell
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
		t.Errorf("%d of them are kept, want %d at most", open, most)
	}
	close(s.stay)
	if got := <-slow; got != "200" || s.did() != 1 {
		t.Errorf("the order that was under way: status %s, lines %q", got, s.said(""))
	}
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
