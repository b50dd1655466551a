// Package httpguard protects the HTTP servers of a job's processes: only authorised clients get
// data, and connections cannot exhaust the job's file descriptors.
package httpguard

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/connpeek"
)

// MaxConnections is the maximum number of HTTP connections of a process, far below the limit of
// open files, which logs and checkpoints need.
const MaxConnections = 64

// AnswerTime is the time limit for reading a response.
const AnswerTime = 30 * time.Second

// NewServer returns an HTTP server that disconnects silent or slow clients, for use with
// [NewCrowd].
func NewServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 20 * time.Second, WriteTimeout: AnswerTime, IdleTimeout: 30 * time.Second,
		MaxHeaderBytes: 8 << 10, ErrorLog: log.New(io.Discard, "", 0), // clients' errors
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, visitorKey{}, c) },
	}
}

// NewCrowd limits l to most connections: a further connection closes the oldest without [Stay].
// Silent connections therefore block no client, and use a limited number of descriptors.
// Connections that cannot be HTTP are closed immediately.
func NewCrowd(l net.Listener, most int) net.Listener {
	connpeek.SpeakFirst(l)
	return &crowd{Listener: l, most: most}
}

type crowd struct {
	net.Listener
	most int

	mu     sync.Mutex
	inside []*visitor // the oldest first
}

// visitor is a connection.
type visitor struct {
	net.Conn
	crowd *crowd
	busy  atomic.Bool
}

type visitorKey struct{}

// Stay disables the timeouts of a request with a long response: until done is called, only a
// disconnect ends it. The time limit for reading the response starts then. Connections without
// deadlines are allowed.
func Stay(w http.ResponseWriter, r *http.Request) (done func()) {
	free := Hold(r)
	conn := http.NewResponseController(w)
	_, _ = conn.SetReadDeadline(time.Time{}), conn.SetWriteDeadline(time.Time{})
	return func() {
		_ = conn.SetWriteDeadline(time.Now().Add(AnswerTime))
		free()
	}
}

// Hold keeps the connection of a request open when further connections exceed the limit, until done
// is called. The timeouts remain.
func Hold(r *http.Request) (done func()) {
	v, ok := r.Context().Value(visitorKey{}).(*visitor)
	if !ok {
		return func() {}
	}
	v.busy.Store(true)
	return func() { v.busy.Store(false) }
}

// Accept returns the next connection within the limit.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if !speaksHTTP(conn) {
			_ = conn.Close()
			continue
		}
		v := &visitor{Conn: conn, crowd: c}
		if out := c.enter(v); out != nil {
			_ = out.Close()
		}
		if !c.has(v) {
			continue // all others are busy
		}
		return v, nil
	}
}

// speaksHTTP reports whether the first byte of conn, if any, may start a request: an upper-case
// letter.
func speaksHTTP(conn net.Conn) bool {
	var first [1]byte
	n, gone := connpeek.Peek(conn, first[:])
	return !gone && (n == 0 || 'A' <= first[0] && first[0] <= 'Z')
}

// enter adds a visitor, and returns a visitor to close, perhaps v, or nil.
func (c *crowd) enter(v *visitor) (out *visitor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inside = append(c.inside, v)
	if len(c.inside) <= c.most {
		return nil
	}
	return c.inside[slices.IndexFunc(c.inside, func(v *visitor) bool { return !v.busy.Load() })]
}

func (c *crowd) has(v *visitor) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.inside, v)
}

// Close closes the connection; repeated calls are allowed.
func (v *visitor) Close() error {
	v.crowd.mu.Lock()
	v.crowd.inside = slices.DeleteFunc(v.crowd.inside, func(other *visitor) bool { return other == v })
	v.crowd.mu.Unlock()
	return v.Conn.Close()
}
