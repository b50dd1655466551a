package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/connpeek"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/wire"
)

// porch is a door with a listener before it, and what it reported.
type porch struct {
	*AcceptLimiter
	t      testing.TB
	l      net.Listener
	ticket Ticket
	work   sync.WaitGroup

	came, closed atomic.Int32 // connections that were accepted, and of these closed at sight

	mu    sync.Mutex
	lines []string
	errs  []error
	in    []*Link
}

func newPorch(t testing.TB, slots int) *porch {
	p := &porch{t: t, l: listen(t), ticket: NewTicket()}
	connpeek.SpeakFirst(p.l)
	p.AcceptLimiter = NewDoor(slots, func(line string) { p.mu.Lock(); defer p.mu.Unlock(); p.lines = append(p.lines, line) })
	ctx, cancel := context.WithCancel(context.Background())
	p.work.Go(func() {
		for {
			conn, err := p.l.Accept()
			if err != nil {
				return
			}
			p.came.Add(1)
			s := p.AcceptLimiter.Admit(conn)
			if s == nil {
				p.closed.Add(1)
				continue
			}
			p.work.Go(func() {
				link, _, err := s.Accept(ctx, p.ticket, Hello{Version: "1", Purpose: Control}, nil)
				p.mu.Lock()
				defer p.mu.Unlock()
				if err != nil {
					p.errs = append(p.errs, err)
				} else {
					p.in = append(p.in, link)
				}
			})
		}
	})
	t.Cleanup(func() {
		p.l.Close()
		cancel()
		p.work.Wait()
		for _, l := range p.in {
			l.Close()
		}
	})
	return p
}

func (p *porch) knock(say string) net.Conn {
	p.t.Helper()
	c, err := net.Dial("tcp", p.l.Addr().String())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	io.WriteString(c, say)
	return c
}

// enter is what a rank does to get in: it tries again when it is hung up on. Of
// connections that came in one burst a later one may be served first, and then
// be the oldest stranger inside.
func (p *porch) enter() error {
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		link, _, err := Dial(context.Background(), p.l.Addr().String(), p.ticket, Hello{Version: "1", Purpose: Control})
		if err == nil {
			return link.Close()
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) || time.Now().After(deadline) {
			return err
		}
	}
}

// refused waits until so many were refused, and returns why.
func (p *porch) refused(n int) (errs []error, lines []string) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		errs, lines = p.errs, p.lines
		p.mu.Unlock()
		if len(errs) >= n {
			return errs, lines
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%d of %d were refused: %v", len(errs), n, errs)
		}
	}
}

// Silent and slow strangers, however many, keep nobody out, and each kind of
// refusal is reported once.
func TestDoorInACrowd(t *testing.T) {
	leakcheck.Check(t)
	p := newPorch(t, 8)
	preface := wire.PrefaceMagic
	var drips []net.Conn
	for i := range 300 {
		switch i % 3 {
		case 0:
			p.knock("") // half open, for all one can see: the system keeps it
		case 1:
			drips = append(drips, p.knock(preface[:1]))
		case 2:
			p.knock("GET / HTTP/1.1\r\n\r\n")
		}
		if i%50 == 49 {
			for _, c := range drips {
				io.WriteString(c, preface[1:2])
			}
			if err := p.enter(); err != nil {
				t.Fatalf("after %d strangers: %v", i+1, err)
			}
		}
	}
	errs, lines := p.refused(100 - 8)
	for _, err := range errs {
		if !errors.Is(err, errCrowded) && !errors.Is(err, ErrNotRingo) && !strings.Contains(err.Error(), "reset") {
			t.Errorf("unexpected: %v", err)
		}
	}
	if len(lines) > 3 || !strings.HasPrefix(lines[0], "refused a connection from 127.0.0.1:") {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}

// Connections that say nothing reach no goroutine and no memory of ours, and garbage that comes again is closed at sight.
func TestDoorSparesTheJob(t *testing.T) {
	if cookies, err := os.ReadFile("/proc/sys/net/ipv4/tcp_syncookies"); err != nil || cookies[0] == '0' {
		t.Skip("the system lets in who says nothing")
	}
	leakcheck.Check(t)
	p := newPorch(t, 8)
	before := runtime.NumGoroutine()
	for range 500 {
		p.knock("")
	}
	must(t, p.enter())
	if n, more := p.came.Load(), runtime.NumGoroutine()-before; n != 1 || more > 3 { // of the one that came in
		t.Errorf("%d connections were accepted beside 500 that say nothing, %d goroutines more: want 1 and hardly any", n, more)
	}
	p.knock("GET / HTTP/1.1\r\n\r\n")
	for range 100 {
		c := p.knock(strings.Repeat("garbage ", 40))
		must(t, c.SetReadDeadline(time.Now().Add(patience)))
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("garbage was answered with %d bytes, %v", n, err)
		}
	}
	must(t, p.enter())
	if errs, lines := p.refused(1); p.closed.Load() != 100 || len(errs) != 1 || len(lines) != 1 {
		t.Errorf("%d of 100 were closed at sight; %v, %q", p.closed.Load(), errs, lines)
	}
}

// However fast strangers come, no more of them have a descriptor than there are slots: the others are sent away
// before the next one is accepted, not when a goroutine finds the time.
func TestDoorBoundsDescriptors(t *testing.T) {
	d := NewDoor(8, nil)
	var all []*closing
	for range 5000 {
		c := &closing{}
		d.Admit(c)
		all = append(all, c)
		open := 0
		for _, c := range all[max(0, len(all)-20):] {
			if !c.closed {
				open++
			}
		}
		if want := min(len(all), 8); open != want {
			t.Fatalf("after %d strangers %d are inside, want %d", len(all), open, want)
		}
	}
}

// closing is a connection that says whether it was closed.
type closing struct {
	net.Conn
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// What the holders of the ticket do wrong is told each time it differs, up to a
// limit.
func TestDoorReportsDifferences(t *testing.T) {
	var lines []string
	d := NewDoor(1, func(line string) { lines = append(lines, line) })
	from := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 5}
	for i := range 3 * maxTold {
		d.reportRefusal(from, fmt.Errorf("connection from %v: %w", from, refusal{fmt.Errorf("there is a rank %d already", i/2)}))
		d.reportRefusal(from, fmt.Errorf("connection from %v: %w", from, ErrTicket))
	}
	if len(lines) != maxTold || !strings.Contains(lines[0], "rank 0 already") || !strings.Contains(lines[1], "tickets differ") ||
		!strings.HasSuffix(lines[maxTold-1], "refused without a report") {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

// A length in the handshake is not believed: nothing of that size is allocated.
func TestOversizedHandshake(t *testing.T) {
	const n = 50
	p := newPorch(t, n) // nobody is sent away for another one's sake
	preface, err := wire.AppendPreface(nil, "1")
	if err != nil {
		t.Fatal(err)
	}
	var head [wire.HeaderSize]byte
	wire.PutHeader(&head, wire.Header{Type: wire.Hello, Length: wire.MaxPayload})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		p.knock(string(preface) + string(head[:]))
	}
	errs, _ := p.refused(n)
	runtime.ReadMemStats(&after)
	for _, err := range errs {
		if !errors.Is(err, wire.ErrTooLong) || !errors.Is(err, ErrNotRingo) {
			t.Errorf("got %v", err)
		}
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > n<<17 {
		t.Errorf("%d connections made %d bytes be allocated", n, used)
	}
}

// A handshake that was overheard cannot be said again.
func TestReplayedHandshake(t *testing.T) {
	p := newPorch(t, 8)
	proxy := listen(t)
	heard := make(chan []byte, 1)
	go func() { // between the two, and writes down what the dialer says
		in, err := proxy.Accept()
		if err != nil {
			return
		}
		defer in.Close()
		out, err := net.Dial("tcp", p.l.Addr().String())
		if err != nil {
			return
		}
		defer out.Close()
		go io.Copy(in, out)
		var said bytes.Buffer
		io.Copy(io.MultiWriter(out, &said), in)
		heard <- said.Bytes()
	}()
	link, _, err := Dial(context.Background(), proxy.Addr().String(), p.ticket, Hello{Version: "1", Purpose: Control})
	if err != nil {
		t.Fatal(err)
	}
	link.Close()
	p.knock(string(<-heard))
	errs, lines := p.refused(1)
	if !errors.Is(errs[0], ErrTicket) || len(lines) != 1 {
		t.Errorf("got %v, %q", errs, lines)
	}
}

// script is a connection whose other end says what is written down.
type script struct {
	net.Conn // nil: what is not below is not called
	r        io.Reader
}

func (s script) Read(p []byte) (int, error)       { return s.r.Read(p) }
func (s script) Write(p []byte) (int, error)      { return len(p), nil }
func (s script) Close() error                     { return nil }
func (s script) SetDeadline(time.Time) error      { return nil }
func (s script) SetReadDeadline(time.Time) error  { return nil }
func (s script) SetWriteDeadline(time.Time) error { return nil }
func (s script) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)} }
func (s script) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2)} }

// Whatever a stranger says, neither end of a handshake lets it in, fails in
// another way than by an error, or allocates much.
func FuzzHandshake(f *testing.F) {
	ticket, hello := NewTicket(), Hello{Version: "1", Purpose: MeshLink, Rank: 1, WorldSize: 2}
	preface, _ := wire.AppendPreface(nil, "1")
	frame := func(typ wire.Type, p []byte) []byte {
		var h [wire.HeaderSize]byte
		wire.PutHeader(&h, wire.Header{Type: typ, Length: len(p)})
		return append(h[:], p...)
	}
	words, _ := appendHello(nil, hello, make([]byte, nonceBytes))
	say := append(append(bytes.Clone(preface), frame(wire.Hello, words)...), frame(wire.Proof, make([]byte, 32))...)
	f.Add(say)
	f.Add(append(bytes.Clone(preface), frame(wire.Refusal, []byte("\x03no"))...))
	f.Add(say[:len(preface)+9])
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte{tlsRecord, 3, 1, 0, 5, 1, 0, 0, 1, 0})
	f.Fuzz(func(t *testing.T, said []byte) {
		for name, run := range map[string]func(*handshaker) error{"dial": (*handshaker).dial, "accept": (*handshaker).accept} {
			for _, mode := range []string{TLSOn, TLSOff} {
				link, _, err := handshake(context.Background(), script{r: bytes.NewReader(said)}, run, ticket.Under(TLS{Mode: mode}), hello, nil)
				if err == nil || link != nil {
					t.Errorf("%s with TLS %s: let in", name, mode)
				}
			}
		}
	})
}
