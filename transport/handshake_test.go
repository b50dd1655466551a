package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/wire"
)

// listen returns a loopback listener that is closed with the test.
func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

type ending struct {
	link  *Link
	hello Hello
	err   error
}

// acceptOne answers the next connection.
func acceptOne(t testing.TB, l net.Listener, who Credentials, mine Hello, check func(Hello) error) <-chan ending {
	out := make(chan ending, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			out <- ending{err: err}
			return
		}
		link, h, err := ServerHandshake(context.Background(), conn, who, mine, check)
		out <- ending{link, h, err}
	}()
	return out
}

// meet lets two ends shake hands.
func meet(t testing.TB, dialTicket, acceptTicket Ticket, dial, accept Hello, check func(Hello) error) (d, a ending) {
	t.Helper()
	l := listen(t)
	answer := acceptOne(t, l, acceptTicket, accept, check)
	d.link, d.hello, d.err = Dial(context.Background(), l.Addr().String(), dialTicket, dial)
	a = <-answer
	for _, o := range []ending{d, a} {
		if o.link != nil {
			t.Cleanup(func() { o.link.Close() })
		}
	}
	return d, a
}

func TestHandshake(t *testing.T) {
	ticket := NewTicket()
	one := Hello{Version: "1.0", Purpose: MeshLink, Rank: 1, WorldSize: 2, Addr: "127.0.0.1:77"}
	zero := Hello{Version: "1.0", Purpose: MeshLink, Rank: 0, WorldSize: 2, Addr: ""}
	d, a := meet(t, ticket, ticket, one, zero, func(Hello) error { return nil })
	if d.err != nil || a.err != nil {
		t.Fatal(d.err, a.err)
	}
	if d.hello != zero || a.hello != one {
		t.Errorf("hellos: got %+v and %+v", d.hello, a.hello)
	}
	if d.link.Sent() != a.link.Received() || d.link.Received() != a.link.Sent() || d.link.Sent() == 0 {
		t.Errorf("counters: %d %d %d %d", d.link.Sent(), a.link.Received(), d.link.Received(), a.link.Sent())
	}
	echo := func(from, to *Link) {
		t.Helper()
		if err := from.WriteFrame(wire.Header{Type: wire.Data, Seq: 9}, []byte("ring"), patience); err != nil {
			t.Fatal(err)
		}
		h, p, err := readWithin(to, 10, patience)
		if err != nil || string(p) != "ring" || h.Seq != 9 {
			t.Fatal(h, p, err)
		}
	}
	echo(d.link, a.link)
	echo(a.link, d.link)
}

func TestHandshakeRefusals(t *testing.T) {
	ticket := NewTicket()
	mine := Hello{Version: "1.0", Purpose: MeshLink, Rank: 1, WorldSize: 2}
	other, control := mine, mine
	other.Version, control.Purpose = "2.0", Control
	full := errors.New("rank 1 is already here")
	for _, c := range []struct {
		name         string
		dialTicket   Ticket
		accept       Hello
		check        func(Hello) error
		want         error
		dialer, here []string // in the errors' texts
	}{
		{"ticket", NewTicket(), mine, nil, ErrTicket, []string{"refused", "tickets differ"}, []string{"tickets differ"}},
		{"version", ticket, other, nil, ErrVersion, []string{"1.0", "2.0"}, []string{"1.0", "2.0"}},
		{"purpose", ticket, control, nil, ErrRefused, []string{"control port", "mesh port"}, []string{"control port"}},
		{"check", ticket, mine, func(Hello) error { return full }, ErrRefused, []string{full.Error()}, []string{full.Error()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, a := meet(t, c.dialTicket, ticket, mine, c.accept, c.check)
			if !errors.Is(d.err, c.want) || !errors.Is(a.err, c.want) {
				t.Errorf("got %v and %v, want %v", d.err, a.err, c.want)
			}
			for _, s := range c.dialer {
				if !strings.Contains(d.err.Error(), s) {
					t.Errorf("the dialer's error does not say %q: %v", s, d.err)
				}
			}
			for _, s := range c.here {
				if !strings.Contains(a.err.Error(), s) {
					t.Errorf("the acceptor's error does not say %q: %v", s, a.err)
				}
			}
		})
	}
}

// A stranger that dials is refused as soon as it says something else, and told.
// It holds invariant[ticket-first].
func TestAcceptStrangers(t *testing.T) {
	for _, say := range []string{"GET / HTTP/1.1\r\n\r\n", "\n", "\x8bringo\n", "\x16\x03\x01\x02\x00\x01\x00"} {
		l := listen(t)
		answer := acceptOne(t, l, NewTicket(), Hello{Version: "1"}, nil)
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, say)
		told, _ := io.ReadAll(conn)
		conn.Close()
		if a := <-answer; !errors.Is(a.err, ErrNotRingo) {
			t.Errorf("%q: got %v", say, a.err)
		}
		want := ErrNotRingo.Error()
		if say[0] == tlsRecord {
			want = string(noTLS)
		}
		if !strings.Contains(string(told), want) {
			t.Errorf("%q is told %q", say, told)
		}
	}
}

func TestDialStrangers(t *testing.T) {
	for _, say := range []string{"SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n"} {
		l := listen(t)
		go func() {
			if conn, err := l.Accept(); err == nil {
				io.WriteString(conn, say)
				conn.Close()
			}
		}()
		_, _, err := Dial(context.Background(), l.Addr().String(), NewTicket(), Hello{Version: "1"})
		if !errors.Is(err, ErrNotRingo) || !strings.Contains(err.Error(), say[:4]) {
			t.Errorf("%q: got %v", say, err)
		}
	}
}

func TestHandshakeEndsWithItsContext(t *testing.T) {
	l := listen(t) // connects, and never answers
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, _, err := Dial(ctx, l.Addr().String(), NewTicket(), Hello{Version: "1"})
	if !errors.Is(err, ErrTimeout) {
		t.Errorf("got %v", err)
	}
	cause := errors.New("enough")
	stopped, stop := context.WithCancelCause(context.Background())
	time.AfterFunc(20*time.Millisecond, func() { stop(cause) })
	if _, _, err := Dial(stopped, l.Addr().String(), NewTicket(), Hello{Version: "1"}); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}
