package fake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
)

// Net is a network in memory. The zero value has no listeners.
type Net struct {
	mu        sync.Mutex
	listeners map[string]*listener
	wrap      func(addr string, c net.Conn) net.Conn
}

var errRefused = errors.New("connection refused")

// Listen returns a listener for an address of any text. A closed listener may be replaced.
func (n *Net) Listen(addr string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners == nil {
		n.listeners = map[string]*listener{}
	}
	l := &listener{addr: address(addr), conns: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[addr] = l
	return l
}

// Wrap passes later dialled connections through f.
func (n *Net) Wrap(f func(addr string, c net.Conn) net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wrap = f
}

// Dial connects to the listener of an address.
func (n *Net) Dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	l, wrap := n.listeners[addr], n.wrap
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("%s: %w", addr, errRefused)
	}
	near, far := net.Pipe()
	select {
	case l.conns <- named{far, l.addr}:
	case <-l.closed:
		return nil, fmt.Errorf("%s: %w", addr, errRefused)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if wrap != nil {
		return wrap(addr, near), nil
	}
	return near, nil
}

type listener struct {
	addr   address
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return l.addr }

type address string

func (a address) Network() string { return "memory" }
func (a address) String() string  { return string(a) }

type named struct {
	net.Conn
	addr address
}

func (c named) RemoteAddr() net.Addr { return c.addr }

// Cut is a connection that fails after a number of read or written bytes; below zero: never.
type Cut struct {
	net.Conn
	mu          sync.Mutex
	read, write int
}

// NewCut returns c, cut after the given numbers of bytes.
func NewCut(c net.Conn, read, write int) *Cut { return &Cut{Conn: c, read: read, write: write} }

var errCut = errors.New("the connection was cut")

// Read reads up to the cut.
func (c *Cut) Read(p []byte) (int, error) {
	allowed := c.allow(&c.read, len(p))
	if allowed == 0 && len(p) > 0 {
		c.Conn.Close()
		return 0, errCut
	}
	n, err := c.Conn.Read(p[:allowed])
	c.spend(&c.read, n)
	return n, err
}

// Write writes up to the cut.
func (c *Cut) Write(p []byte) (int, error) {
	allowed := c.allow(&c.write, len(p))
	n, err := 0, error(nil)
	if allowed > 0 {
		n, err = c.Conn.Write(p[:allowed])
		c.spend(&c.write, n)
	}
	if err == nil && n < len(p) {
		c.Conn.Close()
		err = errCut
	}
	return n, err
}

func (c *Cut) allow(left *int, n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *left < 0 {
		return n
	}
	return min(n, *left)
}

func (c *Cut) spend(left *int, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *left >= 0 {
		*left -= n
	}
}
