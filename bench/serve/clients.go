package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// each runs clients for a time, each with a request per interval (0: one after another).
func (b *bench) each(clients int, d, every time.Duration) {
	var all sync.WaitGroup
	end := time.Now().Add(d)
	for c := range clients {
		all.Go(func() {
			r := rand.New(rand.NewPCG(2, uint64(c)))
			next := time.Now().Add(time.Duration(r.Float64() * float64(every)))
			warm := next.Add(time.Second)
			one := client{bench: b, versions: map[string]int{}}
			for time.Now().Before(end) {
				if every > 0 {
					time.Sleep(time.Until(next))
					next = next.Add(every)
				}
				one.ask(r.IntN(len(b.bodies)), time.Now().After(warm))
			}
			one.leave()
		})
	}
	all.Wait()
}

// client is a connection that sends one request after the other. It reads answers with little work,
// because the clients share the processors with the server.
type client struct {
	*bench
	conn     net.Conn
	in       *bufio.Reader
	body     []byte
	times    []time.Duration
	versions map[string]int
}

// ask sends a row and checks the answer.
func (c *client) ask(row int, timed bool) {
	start := time.Now()
	status, err := c.send(c.bodies[row])
	took := time.Since(start)
	if err != nil {
		c.lost.Add(1)
		c.problem("lost: row %d: %v", row, err)
		if c.conn != nil {
			_ = c.conn.Close()
			c.conn = nil
		}
		return
	}
	if status == 429 || status == 503 {
		c.rejected.Add(1)
		return
	}
	_, version, _ := bytes.Cut(c.body, []byte(`"version":"`))
	version, _, _ = bytes.Cut(version, []byte(`"`))
	want := c.want[string(version)]
	if want == nil || !bytes.Contains(c.body, []byte(`{"row":0,`+want[row]+`}`)) {
		c.wrong.Add(1)
		c.problem("wrong: row %d: %d %s, want %s", row, status, c.body, want)
		return
	}
	c.answered.Add(1)
	c.versions[string(version)]++
	if timed {
		c.times = append(c.times, took)
	}
}

// send sends a body and reads the answer to c.body.
func (c *client) send(body string) (status int, err error) {
	if c.conn == nil {
		if c.conn, err = net.Dial("tcp", strings.TrimPrefix(c.address, "http://")); err != nil {
			return 0, err
		}
		c.in = bufio.NewReader(c.conn)
	}
	_ = c.conn.SetDeadline(time.Now().Add(30 * time.Second))
	c.body = fmt.Appendf(c.body[:0], "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if _, err := c.conn.Write(c.body); err != nil {
		return 0, err
	}
	size := -1
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		switch {
		case len(name) == 0:
			if size < 0 {
				return 0, errors.New("an answer without Content-Length")
			}
			c.body = slices.Grow(c.body[:0], size)[:size]
			_, err = io.ReadFull(c.in, c.body)
			return status, err
		case status == 0:
			status, err = strconv.Atoi(string(value[:min(len(value), 3)]))
		case bytes.EqualFold(name, []byte("Content-Length:")):
			size, err = strconv.Atoi(string(value))
		}
		if err != nil {
			return 0, fmt.Errorf("header %q: %w", line, err)
		}
	}
}

// leave adds what the client has measured to the sums of the load.
func (c *client) leave() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bench.times = append(c.bench.times, c.times...)
	for v, n := range c.versions {
		c.bench.versions[v] += n
	}
}

func (b *bench) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	text = text[:min(len(text), 500)]
	b.first.CompareAndSwap(nil, &text)
}

// slow sends a request byte by byte.
func (b *bench) slow(stop <-chan struct{}) {
	for {
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.address, "http://"))
		if err != nil {
			return
		}
		text := fmt.Sprintf("POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(b.bodies[0]), b.bodies[0])
		for i := range len(text) {
			select {
			case <-stop:
				_ = conn.Close()
				return
			case <-time.After(100 * time.Millisecond):
			}
			if _, err := conn.Write([]byte{text[i]}); err != nil {
				break
			}
		}
		_ = conn.Close()
	}
}

// broken sends requests that are cut, too large, no HTTP or no JSON, and reads no answer.
func (b *bench) broken(stop <-chan struct{}) {
	texts := []string{
		"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n{\"a\":",
		"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n[[[[",
		"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"\x16\x03\x01\x02\x00", "GET / HTTP/9\r\n\r\n", "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\n\r\n{\"a\":1",
		"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n" + strings.Repeat("[", 1<<20),
	}
	for i := rand.IntN(len(texts)); ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(2 * rand.Float64() * float64(time.Second))):
		}
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.address, "http://"))
		if err != nil {
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(conn, texts[i%len(texts)])
		_ = conn.Close()
	}
}
