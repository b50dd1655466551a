package tcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

const patience = time.Minute

func receive(m *Mesh, from int, tag transport.Tag, n int) ([]byte, error) {
	var r transport.Recv
	dst := make([]byte, n)
	m.Post(&r, from, tag, dst)
	return dst, r.Wait(patience)
}

// handshakeBytes is what a handshake puts on the wire in both directions when
// one end sends an address of n bytes: two prefaces, hellos and proofs.
func handshakeBytes(version string, n int) (dialer, acceptor int64) {
	preface := 8 + 2 + len(version)
	const hello, proof = wire.HeaderSize + 32 + 1 + 4 + 4 + 1 + 1 + 2, wire.HeaderSize + 32
	return int64(preface + hello + proof), int64(preface + hello + proof + n)
}

func TestWireBytesAreExact(t *testing.T) {
	leakcheck.Check(t)
	cfgs := configs(t, 2)
	m, errs := join(cfgs)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	sizes := []int{0, 1, 1000, 100_000}
	var payload int64
	for i, n := range sizes {
		tag := transport.Tag{Part: uint32(i)}
		if err := m[0].Send(1, tag, make([]byte, n), patience); err != nil {
			t.Fatal(err)
		}
		if _, err := receive(m[1], 0, tag, n); err != nil {
			t.Fatal(err)
		}
		payload += int64(n)
	}
	dialed, accepted := handshakeBytes("test", len(cfgs[0].Addrs[0]))
	frames := payload + int64(len(sizes))*wire.HeaderSize
	want := []transport.Traffic{
		{PayloadSent: payload, WireSent: accepted + frames, WireReceived: dialed, MessagesSent: 4},
		{PayloadReceived: payload, WireSent: dialed, WireReceived: accepted + frames},
	}
	for i := range m {
		if got := m[i].Traffic(); got != want[i] {
			t.Errorf("rank %d: got %+v, want %+v", i, got, want[i])
		}
	}
	m[0].Close() // its goodbye is a header
	m[1].Close() // has nobody left to take leave of
	if sent, want := m[0].Traffic().WireSent, accepted+frames+wire.HeaderSize; sent != want || m[1].Traffic().WireReceived != want {
		t.Errorf("after the goodbye %d bytes were sent and %d received, want %d", sent, m[1].Traffic().WireReceived, want)
	}
}

// A peer that posts nothing takes messages up to its limit; then the sender
// waits, and in the end fails naming it. What was taken is not lost.
func TestSendToAPeerThatDoesNotReceive(t *testing.T) {
	leakcheck.Check(t)
	m := formed(t, 2, func(c *Config) { c.MaxUnexpectedBytes, c.SocketBufferBytes = 1<<20, 64<<10 })
	p := make([]byte, 200_000)
	n := 0
	var err error
	for ; err == nil && n < 1000; n++ {
		err = m[0].Send(1, transport.Tag{Part: uint32(n)}, p, 100*time.Millisecond)
	}
	var e *transport.Error
	if !errors.Is(err, transport.ErrTimeout) || !errors.As(err, &e) || e.Peer != 1 || !strings.Contains(err.Error(), "to rank 1") {
		t.Fatalf("after %d messages: %v", n, err)
	}
	for i := range n - 1 {
		if _, err := receive(m[1], 0, transport.Tag{Part: uint32(i)}, len(p)); err != nil {
			t.Fatal(err)
		}
	}
	if err := m[1].Send(0, transport.Tag{}, p, patience); err != nil {
		t.Errorf("the other direction does not work: %v", err)
	}
	if _, err := receive(m[0], 1, transport.Tag{}, len(p)); err != nil {
		t.Errorf("the other direction does not work: %v", err)
	}
}

// A sender that waits for room goes on as soon as the receiver posts.
func TestBackpressureEnds(t *testing.T) {
	leakcheck.Check(t)
	m := formed(t, 2, func(c *Config) { c.MaxUnexpectedBytes, c.SocketBufferBytes = 1<<18, 64<<10 })
	const messages, size = 40, 200_000
	sent := make(chan error, 1)
	go func() {
		for i := range messages {
			if err := m[0].Send(1, transport.Tag{Part: uint32(i)}, bytes.Repeat([]byte{byte(i)}, size), patience); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i := range messages {
		got, err := receive(m[1], 0, transport.Tag{Part: uint32(i)}, size)
		if err != nil || got[size-1] != byte(i) {
			t.Fatal(i, err)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

// Close and Abort end a send that is stuck, and do not take long themselves.
func TestEndingAStuckSend(t *testing.T) {
	leakcheck.Check(t)
	enough := errors.New("enough")
	var all sync.WaitGroup
	for want, end := range map[error]func(*Mesh){
		transport.ErrClosed: func(m *Mesh) { m.Close() },
		enough:              func(m *Mesh) { m.Abort(enough) },
	} {
		m := formed(t, 2, func(c *Config) { c.MaxUnexpectedBytes = 1 << 10 })
		all.Go(func() {
			stuck := make(chan error, 1)
			go func() { stuck <- m[0].Send(1, transport.Tag{}, make([]byte, 64<<20), time.Hour) }()
			time.Sleep(20 * time.Millisecond)
			end(m[0])
			if err := <-stuck; !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
	all.Wait()
}

// So does the Abort of a third rank, though this one's own comes too late then.
func TestAnothersAbortEndsAStuckSend(t *testing.T) {
	leakcheck.Check(t)
	cfgs := configs(t, 3)
	made := make([]*Mesh, 3)
	var forming sync.WaitGroup
	for _, r := range []int{0, 2} {
		forming.Go(func() {
			m, err := New(context.Background(), cfgs[r])
			if err != nil {
				t.Error(err)
			}
			made[r] = m
		})
	}
	one := []*transport.Link{pretend(t, cfgs, 0), acceptAs(t, cfgs, 1)} // a rank that is stopped
	forming.Wait()
	stuck := make(chan error, 1)
	go func() { stuck <- made[0].Send(1, transport.Tag{}, make([]byte, 64<<20), time.Hour) }()
	time.Sleep(20 * time.Millisecond)
	made[2].Abort(errors.New("enough"))
	var by *transport.AbortError
	if err := <-stuck; !errors.As(err, &by) || by.Rank != 2 {
		t.Errorf("got %v, want what rank 2 says", err)
	}
	one[0].Close()
	one[1].Close()
	closeAll([]*Mesh{made[0], made[2]})
}

// An Abort does not wait for the rest of a message that has come in part.
func TestAbortEndsAReceiveUnderWay(t *testing.T) {
	leakcheck.Check(t)
	cfgs := configs(t, 3)
	made := make(chan *Mesh, 2)
	for _, r := range []int{0, 2} {
		go func() {
			m, err := New(context.Background(), cfgs[r])
			if err != nil {
				t.Error(err)
			}
			made <- m
		}()
	}
	one := []*transport.Link{pretend(t, cfgs, 0), acceptAs(t, cfgs, 1)}
	zero, two := <-made, <-made
	if zero.Rank() != 0 {
		zero, two = two, zero
	}
	got := make(chan error, 1)
	go func() {
		_, err := receive(zero, 1, transport.Tag{}, 1<<20)
		got <- err
	}()
	if err := halfAFrame(one[0], 1<<20); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	enough := errors.New("enough")
	zero.Abort(enough)
	if err := <-got; !errors.Is(err, enough) {
		t.Errorf("got %v, want that it was enough", err)
	}
	one[0].Close()
	one[1].Close()
	closeAll([]*Mesh{zero, two})
}

// The rank that everybody names is the one that died, also by the word of ranks
// that leave because of it.
func TestEverySurvivorNamesTheSameRank(t *testing.T) {
	leakcheck.Check(t)
	m := formed(t, 4, nil)
	pending := make([]transport.Recv, 4)
	for _, r := range []int{0, 3} {
		m[r].Post(&pending[r], 1, transport.Tag{Seq: 1}, make([]byte, 1)) // rank 1 will not send
	}
	for peer := range 4 {
		if peer != 2 {
			m[2].Cut(peer) // rank 2 dies
		}
	}
	_, err := receive(m[1], 2, transport.Tag{Seq: 2}, 1)
	m[1].Abort(err)
	for _, r := range []int{0, 3} {
		err := pending[r].Wait(patience)
		var lost *transport.LostError
		if !errors.As(err, &lost) || lost.Rank != 2 || !errors.Is(err, transport.ErrAborted) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// A rank that leaves because of an abort passes the reason on, in case its word
// is read first.
func TestLeavingRanksPassTheReasonOn(t *testing.T) {
	leakcheck.Check(t)
	m := formed(t, 3, nil)
	reason := &transport.AbortError{Rank: 2, Reason: "r", Lost: &transport.LostError{Rank: 2, Reason: "w"}}
	m[1].stop(reason) // as if rank 2's frame had come to rank 1 only
	m[1].Close()
	_, err := receive(m[0], 1, transport.Tag{}, 1)
	var got *transport.AbortError
	if !errors.As(err, &got) || got.Rank != 2 || got.Reason != "r" || got.Lost == nil || *got.Lost != *reason.Lost {
		t.Errorf("got %v", err)
	}
}

// What does not belong into a mesh ends the connection and nothing else.
func TestProtocolFaults(t *testing.T) {
	leakcheck.Check(t)
	for name, say := range map[string]func(*transport.Link){
		"hello frame":    func(l *transport.Link) { l.WriteFrame(wire.Header{Type: wire.Hello}, nil, patience) },
		"no frame":       func(l *transport.Link) { io.WriteString(below(l), strings.Repeat("?", 100)) },
		"short abort":    func(l *transport.Link) { l.WriteFrame(wire.Header{Type: wire.Abort}, []byte{1}, patience) },
		"long abort":     func(l *transport.Link) { l.WriteFrame(wire.Header{Type: wire.Abort}, make([]byte, 1<<20), patience) },
		"same tag twice": func(l *transport.Link) { twice(l) },
	} {
		cfgs := configs(t, 3)
		made := make(chan *Mesh, 2)
		for _, r := range []int{0, 2} {
			go func() {
				m, err := New(context.Background(), cfgs[r])
				if err != nil {
					t.Error(err)
				}
				made <- m
			}()
		}
		faulty := []*transport.Link{pretend(t, cfgs, 0), acceptAs(t, cfgs, 1)}
		ms := map[int]*Mesh{}
		for range 2 {
			m := <-made
			ms[m.Rank()] = m
		}
		say(faulty[0])
		_, err := receive(ms[0], 1, transport.Tag{Seq: 5}, 1)
		var lost *transport.LostError
		if !errors.As(err, &lost) || lost.Rank != 1 {
			t.Errorf("%s: got %v", name, err)
		}
		if err := ms[0].Send(2, transport.Tag{}, []byte{1}, patience); err != nil {
			t.Errorf("%s: the other link suffers: %v", name, err)
		}
		if _, err := receive(ms[2], 0, transport.Tag{}, 1); err != nil {
			t.Errorf("%s: the other link suffers: %v", name, err)
		}
		faulty[0].Close()
		faulty[1].Close()
		closeAll([]*Mesh{ms[0], ms[2]})
	}
}

func twice(l *transport.Link) {
	for range 2 {
		l.WriteFrame(wire.Header{Type: wire.Data, Seq: 9}, []byte("x"), patience)
	}
}

// pretend dials rank `to` as rank 1 of 3.
func pretend(t *testing.T, cfgs []Config, to int) *transport.Link {
	t.Helper()
	l, _, err := transport.Dial(context.Background(), cfgs[to].Addrs[to], cfgs[to].Ticket,
		transport.Hello{Version: "test", Purpose: transport.MeshLink, Rank: 1, WorldSize: 3, Streams: 1})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// acceptAs answers rank 2 as rank 1 of 3.
func acceptAs(t *testing.T, cfgs []Config, rank int) *transport.Link {
	t.Helper()
	conn, err := cfgs[rank].Listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	cfgs[rank].Listener.Close()
	l, _, err := transport.ServerHandshake(context.Background(), conn, cfgs[rank].Ticket,
		transport.Hello{Version: "test", Purpose: transport.MeshLink, Rank: rank, WorldSize: 3, Streams: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestAbortFrame(t *testing.T) {
	long := strings.Repeat("x", 3*maxWhy)
	const size = 4
	for _, e := range []*transport.AbortError{
		{Rank: 3, Reason: "r"},
		{Rank: 0, Reason: "", Lost: &transport.LostError{Rank: 0, Reason: ""}},
		{Rank: 1, Reason: long, Lost: &transport.LostError{Rank: 2, Reason: long}},
		{Rank: 1, Reason: "r", Timeout: true},
		{Rank: 1, Reason: "r", Timeout: true, Lost: &transport.LostError{Rank: 2, Reason: "w", Timeout: true}},
		{Rank: 1, Reason: "r", Lost: &transport.LostError{Rank: 2, Reason: "w", Timeout: true}},
	} {
		b := encodeAbort(e)
		got, err := decodeAbort(b, size)
		if err != nil || got.Rank != e.Rank || got.Reason != e.Reason[:min(maxWhy, len(e.Reason))] || (got.Lost == nil) != (e.Lost == nil) || got.Timeout != e.Timeout || e.Lost != nil && got.Lost.Timeout != e.Lost.Timeout {
			t.Errorf("got %v, %v, want %v", got, err, e)
		}
		if late := e.Timeout || e.Lost != nil && e.Lost.Timeout; errors.Is(got, os.ErrDeadlineExceeded) != late || transport.TimedOut(got) {
			t.Errorf("%v: of a timeout %v, of one of its own %v", got, !late, transport.TimedOut(got))
		}
	}
	for _, rank := range []int{size, -1, 1 << 31} {
		if got, err := decodeAbort(encodeAbort(&transport.AbortError{Rank: rank}), size); err != errAbort {
			t.Errorf("an abort by rank %d: %v, %v", rank, got, err)
		}
		e := transport.NewAbortError(1, &transport.LostError{Rank: rank, Reason: "w"})
		if got, err := decodeAbort(encodeAbort(e), size); err != nil || got.Lost != nil || got.Reason != e.Reason {
			t.Errorf("the loss of rank %d: %+v, %v", rank, got, err)
		}
	}
}

func FuzzDecodeAbort(f *testing.F) {
	f.Add(encodeAbort(&transport.AbortError{Rank: 1, Reason: "r", Lost: &transport.LostError{Rank: 2, Reason: "w"}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		const size = 5
		e, err := decodeAbort(b, size)
		if err != nil {
			return
		}
		if e.Rank < 0 || e.Rank >= size || e.Lost != nil && (e.Lost.Rank < 0 || e.Lost.Rank >= size) {
			t.Fatalf("% x names a rank that does not exist: %v", b, e)
		}
		if again, err := decodeAbort(encodeAbort(e), size); err != nil || again.Rank != e.Rank {
			t.Fatalf("% x: %v, %v", b, again, err)
		}
	})
}

// halfAFrame writes the header and half of the payload of a message.
func halfAFrame(l *transport.Link, n int) error {
	var head [wire.HeaderSize]byte
	if err := wire.PutHeader(&head, wire.Header{Type: wire.Data, Length: n}); err != nil {
		return err
	}
	_, err := below(l).Write(append(head[:], make([]byte, n/2)...))
	return err
}

// below is the connection below a link, for what is no frame.
func below(l *transport.Link) net.Conn {
	conn, _ := l.Detach()
	return conn
}
