package client

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/service/fake"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// answerWith is a server that welcomes one trainer, reads a message, and answers with
// what it is given.
func answerWith(l net.Listener, ticket transport.Ticket, b []byte) {
	defer l.Close()
	nc, err := l.Accept()
	if err != nil {
		return
	}
	link, _, err := transport.ServerHandshake(context.Background(), nc, ticket, transport.Hello{Version: "1", Purpose: transport.Service}, nil)
	if err != nil {
		return
	}
	defer link.Close()
	conn := message.NewConn(link, message.Server, &message.Limits{Dims: []int{3, 16}, Arrays: []int{1000, 7}, Keys: 100, Values: 1000}, time.Second)
	read := func() error {
		_, _, n, err := conn.Next()
		if err == nil {
			_, err = conn.ReadAll(n)
		}
		return err
	}
	if read() != nil {
		return
	}
	w := message.Welcome{Keys: 100, Values: 1000, Pulls: 4, Heartbeat: time.Second, Silence: 2 * time.Second}
	if conn.WriteFrame(message.TypeWelcome, w.Append(nil)) != nil || read() != nil || read() != nil {
		return
	}
	raw, _ := link.Detach()
	_, _ = raw.Write(b)
}

// Whatever a server says, the client survives: a pull has its rows or an error.
func FuzzClient(f *testing.F) {
	frame := func(t wire.Type, h message.Head, body []byte) []byte {
		b := append(make([]byte, message.Front), body...)
		if err := message.PutFront(b, t, h); err != nil {
			f.Fatal(err)
		}
		return b
	}
	rows := frame(message.TypeRows, message.Head{Number: 1, Step: 1, Count: 1}, bytesview.Bytes([]float32{1, 2, 3}))
	ack := frame(message.TypeAck, message.Head{Number: 1}, nil)
	f.Add(rows)
	f.Add(slices.Concat(ack, rows))
	f.Add(slices.Concat(rows, rows))
	f.Add(slices.Concat(ack, rows[:70]))
	f.Add(frame(message.TypeAck, message.Head{Number: 2}, nil))
	f.Add(frame(message.TypeRows, message.Head{Number: 2, Step: 1, Count: 1}, make([]byte, 12)))
	f.Add(frame(message.TypeGathered, message.Head{Number: 1, Step: 1}, nil))
	f.Add(frame(message.TypeFailed, message.Head{Number: 1, Count: 2}, []byte("no")))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = slices.Clone(b)
		if len(b) >= wire.HeaderSize { // a checksum that fuzzing would not find
			h := wire.Header{Type: wire.Type(b[3]), Length: int(b[24]) | int(b[25])<<8}
			must(t, wire.PutHeader((*[wire.HeaderSize]byte)(b), h))
		}
		var n fake.Net
		ticket := transport.NewTicket()
		l, ended := n.Listen("liar"), make(chan struct{})
		go func() {
			defer close(ended)
			answerWith(l, ticket, b)
		}()
		c, err := Dial(context.Background(), Config{
			Servers: []string{"liar"}, Ticket: ticket, Version: "1", Trainers: 1, Schema: testSchema(), Dial: n.Dial,
			Reconnect: 100 * time.Millisecond, Timeout: time.Second,
		})
		must(t, err)
		must(t, c.Session(0).PushRows(0, 1, []uint64{7}, []float32{1, 1, 1}))
		dst := make([]float32, 3)
		p, err := c.Session(0).PullRows(0, 1, []uint64{7}, dst)
		if err == nil && p.Wait() == nil && len(b) < message.Front+12 {
			t.Fatalf("%d bytes are taken for a row of 12", len(b))
		}
		must(t, c.Close())
		<-ended
	})
}
