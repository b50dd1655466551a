package cluster

import (
	"context"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

// linked returns both ends of a control connection.
func linked(t *testing.T) (a, b *linkChannel) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ticket := transport.NewTicket()
	hello := transport.Hello{Version: "1", Purpose: transport.Control, WorldSize: 3}
	accepted := make(chan *transport.Link, 1)
	go func() {
		defer close(accepted)
		if conn, err := l.Accept(); err == nil {
			if link, _, err := transport.ServerHandshake(context.Background(), conn, ticket, hello, func(transport.Hello) error { return nil }); err == nil {
				accepted <- link
			}
		}
	}()
	dialed, _, err := transport.Dial(t.Context(), l.Addr().String(), ticket, hello)
	if err != nil {
		t.Fatal(err)
	}
	a, b = newLinkChannel(dialed, 3), newLinkChannel(<-accepted, 3)
	t.Cleanup(func() { a.close(); b.close() })
	return a, b
}

// What was sent is what is received, whatever came before it.
func TestChannelKeepsNothingWrong(t *testing.T) {
	a, b := linked(t)
	beat := message{Kind: kindHeartbeat, Peer: -1}
	status := message{Kind: kindStatus, Peer: -1, Doing: "training"}
	waits := message{Kind: kindStatus, Peer: 1, Doing: "training", Waits: true, WaitMillis: 7, In: "allreduce 5"}
	longer, begun := waits, waits
	longer.WaitMillis++
	begun.Begun = []Begun{{5, "allreduce"}}
	other := begun
	other.Begun = []Begun{{5, "broadcast"}}
	roster := message{Kind: kindRoster, Addrs: []string{"a:1", "b:2", "c:3"}}
	long := message{Kind: kindVerdict, Peer: 2, Reason: strings.Repeat("out of paper, ", 500)}
	for i, m := range []message{beat, beat, status, status, beat, waits, longer, longer, begun, begun, other, roster, beat, long, long, beat, status} {
		if err := a.send(m, answerTimeout); err != nil {
			t.Fatal(err)
		}
		if got, err := b.receive(0); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("message %d: sent %+v, received %+v, %v", i, m, got, err)
		}
	}
}

// Heartbeats, which go on for as long as a job does, allocate nothing.
func TestHeartbeatsAllocateNothing(t *testing.T) {
	a, b := linked(t)
	c, _ := job(t, 3, nil)
	c.mu.Lock()
	c.complete = true
	c.mu.Unlock()
	for _, m := range []message{{Kind: kindHeartbeat, Peer: -1}, {Kind: kindStatus, Peer: -1, Doing: "training"}} {
		if n := testing.AllocsPerRun(100, func() {
			if a.send(m, answerTimeout) != nil {
				t.Fatal("not sent")
			}
			if got, err := b.receive(0); err != nil || got.Kind != m.Kind {
				t.Fatal(got, err)
			}
			c.beat(time.Now())
		}); n >= 1 {
			t.Errorf("a %s allocates %v times", m.Kind, n)
		}
	}
}
