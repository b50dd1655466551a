// Package httpguard is how processes of a job answer people over HTTP: none but who may ask, and no
// crowd keeps the job from its files.
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

// MaxConnections is how many connections for people a process has at a time. It is far below what a process may
// have of files: logs and checkpoints need theirs, whoever comes.
const MaxConnections = 64

// AnswerTime is how long who asked may take to read an answer.
const AnswerTime = 30 * time.Second

// NewServer is an HTTP server: who says nothing, or says or reads it slowly, is soon cut off. It is to serve a [NewCrowd].
func NewServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 20 * time.Second, WriteTimeout: AnswerTime, IdleTimeout: 30 * time.Second,
		MaxHeaderBytes: 8 << 10, ErrorLog: log.New(io.Discard, "", 0), // what strangers do wrong
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, visitorKey{}, c) },
	}
}

// NewCrowd is l with at most most connections at a time: one more puts the oldest out, but for those that [Stay]. So many silent ones keep nobody out, and take no more than so many descriptors.
// What cannot be a request is closed at sight.
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

// Stay is for a request whose answer may take long: until done is called only that who asked goes away ends it before its time. The
// time to read the rest of the answer begins then. Connections that know no deadlines have none.
func Stay(w http.ResponseWriter, r *http.Request) (done func()) {
	busy := func(bool) {}
	if v, ok := r.Context().Value(visitorKey{}).(*visitor); ok {
		busy = v.busy.Store
	}
	busy(true)
	conn := http.NewResponseController(w)
	_, _ = conn.SetReadDeadline(time.Time{}), conn.SetWriteDeadline(time.Time{})
	return func() {
		_ = conn.SetWriteDeadline(time.Now().Add(AnswerTime))
		busy(false)
	}
}

// Accept returns the next connection there is room for.
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

// speaksHTTP reports whether what conn begins with, if something has come, may be a request: methods are of large letters.
func speaksHTTP(conn net.Conn) bool {
	var first [1]byte
	n, gone := connpeek.Peek(conn, first[:])
	return !gone && (n == 0 || 'A' <= first[0] && first[0] <= 'Z')
}

// enter lets a visitor in, and returns who has to leave for it, perhaps itself.
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

// Close closes the connection, once or more.
func (v *visitor) Close() error {
	v.crowd.mu.Lock()
	v.crowd.inside = slices.DeleteFunc(v.crowd.inside, func(other *visitor) bool { return other == v })
	v.crowd.mu.Unlock()
	return v.Conn.Close()
}
