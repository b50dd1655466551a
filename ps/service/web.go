package service

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
)

// MaxWebConnections is how many connections for people a server has at a time. It is far below what a process may
// have of files: logs and checkpoints need theirs, whoever comes.
const MaxWebConnections = 64

// NewWebServer is an HTTP server for a Handler: who says nothing, or says or reads it slowly, is soon cut off. It is to serve a
// [NewCrowd].
func NewWebServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 20 * time.Second, WriteTimeout: answerTime, IdleTimeout: 30 * time.Second,
		MaxHeaderBytes: 8 << 10, ErrorLog: log.New(io.Discard, "", 0), // what strangers do wrong
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, visitorKey{}, c) },
	}
}

// NewCrowd is l with at most most connections at a time: one more puts the oldest out, but for those whose order is being
// carried out. So many silent ones keep nobody out, and take no more than so many descriptors.
func NewCrowd(l net.Listener, most int) net.Listener { return &crowd{Listener: l, most: most} }

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

// setBusy keeps the connection of a request from being put out, or no more.
func setBusy(ctx context.Context, is bool) {
	if v, ok := ctx.Value(visitorKey{}).(*visitor); ok {
		v.busy.Store(is)
	}
}

// Accept returns the next connection there is room for.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
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
