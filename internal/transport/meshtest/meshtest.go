// Package meshtest tests implementations of transport.Mesh against common requirements.
package meshtest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/transport"
)

// Form creates a mesh of n ranks, which the suite closes, and may register cleanup with t.
type Form func(t testing.TB, n int) []transport.Mesh

// patience limits waits for required events, soon waits for forbidden events.
const (
	patience = time.Minute
	soon     = 30 * time.Millisecond
)

// Run runs the whole suite, each part on a separate mesh. No part may leave a goroutine or a file.
func Run(t *testing.T, form Form) { RunAllowing(t, form, 0) }

// RunAllowing is Run for meshes with the given allocations per message.
func RunAllowing(t *testing.T, form Form, allocations float64) {
	for _, c := range []struct {
		name  string
		ranks int
		run   func(*testing.T, []transport.Mesh)
	}{
		{"Identity", 3, identity},
		{"OneRank", 1, oneRank},
		{"AllPairsAllSizes", 3, allPairsAllSizes},
		{"AnyOrder", 2, anyOrder},
		{"SenderMayReuse", 2, senderMayReuse},
		{"Concurrent", 3, concurrent},
		{"WrongPeer", 2, wrongPeer},
		{"WrongLength", 2, wrongLength},
		{"WrongOperation", 2, wrongOperation},
		{"SameTagTwice", 2, sameTagTwice},
		{"ReceiveTimesOut", 2, receiveTimesOut},
		{"Polling", 2, polling},
		{"Withdrawn", 2, withdrawn},
		{"Abort", 3, abort},
		{"AbortNamesTheLostRank", 3, abortNamesTheLostRank},
		{"Close", 2, closing},
		{"CloseKeepsWhatWasSent", 2, closeKeepsWhatWasSent},
		{"CloseWhileReceiving", 2, closeWhileReceiving},
		{"Cut", 3, cut},
		{"Fault", 3, fault},
		{"Traffic", 3, traffic},
		{"NoGarbage", 2, func(t *testing.T, ranks []transport.Mesh) { noGarbage(t, ranks, allocations) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			leakcheck.Check(t)
			ranks := form(t, c.ranks)
			t.Cleanup(func() { CloseAll(t, ranks) })
			c.run(t, ranks)
		})
	}
}

// CloseAll closes all ranks concurrently, as the processes of a job would.
func CloseAll(t testing.TB, ranks []transport.Mesh) {
	t.Helper()
	each(ranks, func(m transport.Mesh) {
		if err := m.Close(); err != nil {
			t.Errorf("rank %d: Close: %v", m.Rank(), err)
		}
	})
}

func each(ranks []transport.Mesh, f func(m transport.Mesh)) {
	var all sync.WaitGroup
	for _, m := range ranks {
		all.Go(func() { f(m) })
	}
	all.Wait()
}

func tag(seq, part int) transport.Tag { return transport.Tag{Seq: uint32(seq), Part: uint32(part)} }

// pattern returns a payload specific to seed. The period is prime, to detect misplaced pieces.
func pattern(n, seed int) []byte {
	const period = 251
	p := make([]byte, n)
	for i := range min(n, period) {
		p[i] = byte(i*7 + seed*31)
	}
	for done := period; done < n; done *= 2 {
		copy(p[done:], p[:done])
	}
	return p
}

func send(t testing.TB, m transport.Mesh, to int, tag transport.Tag, p []byte) {
	t.Helper()
	if err := m.Send(to, tag, p, patience); err != nil {
		t.Fatal(err)
	}
}

func receive(m transport.Mesh, from int, tag transport.Tag, n int) ([]byte, error) {
	var r transport.Recv
	dst := make([]byte, n)
	m.Post(&r, from, tag, dst)
	return dst, r.Wait(patience)
}

func expect(t testing.TB, m transport.Mesh, from int, tag transport.Tag, want []byte) {
	t.Helper()
	got, err := receive(m, from, tag, len(want))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("rank %d: message %v from rank %d: %d bytes differ from those sent", m.Rank(), tag, from, len(want))
	}
}

func wantError(t testing.TB, err, want error, op string, rank, peer int) {
	t.Helper()
	if want != nil && !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
	var e *transport.Error
	if !errors.As(err, &e) {
		t.Errorf("got %v, want a *transport.Error", err)
	} else if e.Op != op || e.Rank != rank || e.Peer != peer {
		t.Errorf("got %v, want a fault of %s at rank %d with rank %d", err, op, rank, peer)
	}
}

func identity(t *testing.T, ranks []transport.Mesh) {
	for i, m := range ranks {
		if m.Rank() != i || m.Size() != len(ranks) {
			t.Errorf("rank %d of %d says it is %d of %d", i, len(ranks), m.Rank(), m.Size())
		}
	}
}

func oneRank(t *testing.T, ranks []transport.Mesh) {
	m := ranks[0]
	if m.Traffic() != (transport.Traffic{}) {
		t.Errorf("traffic of a mesh of one: %+v", m.Traffic())
	}
	m.Abort(errors.New("no reason"))
}

func allPairsAllSizes(t *testing.T, ranks []transport.Mesh) {
	sizes := []int{0, 1, 3, 64, 1000, 1 << 14, 1<<14 + 1, 1 << 17, 1 << 20}
	each(ranks, func(m transport.Mesh) {
		for i, n := range sizes {
			for d := 1; d < m.Size(); d++ {
				to, from := (m.Rank()+d)%m.Size(), (m.Rank()-d+m.Size())%m.Size()
				var r transport.Recv
				dst := make([]byte, n)
				if i%2 == 0 {
					m.Post(&r, from, tag(i, d), dst)
				}
				if err := m.Send(to, tag(i, d), pattern(n, m.Rank()+i), patience); err != nil {
					t.Error(err)
					return
				}
				if i%2 == 1 {
					m.Post(&r, from, tag(i, d), dst)
				}
				if err := r.Wait(patience); err != nil || !bytes.Equal(dst, pattern(n, from+i)) {
					t.Errorf("rank %d from rank %d, %d bytes: %v", m.Rank(), from, n, err)
					return
				}
			}
		}
	})
}

// anyOrder checks that receives match by the whole tag, in any order, and early messages are kept.
func anyOrder(t *testing.T, ranks []transport.Mesh) {
	tags := []transport.Tag{{Group: 1, Seq: 2, Part: 3}, {Group: 2, Seq: 1, Part: 3}, {Group: 1, Seq: 3, Part: 2}, {Group: 1<<32 - 1}, {}}
	for i, tg := range tags {
		send(t, ranks[0], 1, tg, pattern(100, i))
	}
	for i := len(tags) - 1; i >= 0; i-- {
		expect(t, ranks[1], 0, tags[i], pattern(100, i))
	}
	var rs [20]transport.Recv
	var dst [20][8]byte
	for i := range rs {
		ranks[1].Post(&rs[i], 0, tag(1, i), dst[i][:])
	}
	for i := range rs {
		send(t, ranks[0], 1, tag(1, (i*7+3)%20), pattern(8, (i*7+3)%20))
	}
	for i := range rs {
		if err := rs[i].Wait(patience); err != nil || !bytes.Equal(dst[i][:], pattern(8, i)) {
			t.Error(i, err)
		}
	}
}

func senderMayReuse(t *testing.T, ranks []transport.Mesh) {
	p := make([]byte, 1<<16)
	for i := range 8 {
		copy(p, pattern(len(p), i))
		send(t, ranks[0], 1, tag(0, i), p)
	}
	clear(p)
	for i := range 8 {
		expect(t, ranks[1], 0, tag(0, i), pattern(len(p), i))
	}
}

// concurrent uses the mesh from many goroutines per rank.
func concurrent(t *testing.T, ranks []transport.Mesh) {
	const flows, messages = 8, 30
	each(ranks, func(m transport.Mesh) {
		var all sync.WaitGroup
		for flow := range flows {
			all.Go(func() {
				if err := converse(m, flow, messages); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
}

// converse sends to the right neighbour and receives from the left.
func converse(m transport.Mesh, flow, messages int) error {
	right, left := (m.Rank()+1)%m.Size(), (m.Rank()+m.Size()-1)%m.Size()
	var r transport.Recv
	for i := range messages {
		n := (flow*997 + i*i*131) % 40000
		dst := make([]byte, n)
		if i%3 != 0 {
			m.Post(&r, left, tag(flow, i), dst)
		}
		if err := m.Send(right, tag(flow, i), pattern(n, flow+i), patience); err != nil {
			return err
		}
		if i%3 == 0 {
			m.Post(&r, left, tag(flow, i), dst)
		}
		if err := r.Wait(patience); err != nil {
			return err
		}
		if !bytes.Equal(dst, pattern(n, flow+i)) {
			return fmt.Errorf("rank %d: flow %d message %d differs", m.Rank(), flow, i)
		}
	}
	return nil
}

func wrongPeer(t *testing.T, ranks []transport.Mesh) {
	for _, peer := range []int{0, 2, -1} {
		err := ranks[0].Send(peer, tag(0, 0), nil, patience)
		wantError(t, err, nil, "send", 0, peer)
		_, err = receive(ranks[0], peer, tag(0, 0), 1)
		wantError(t, err, nil, "receive", 0, peer)
	}
}

// wrongLength checks that a receive of another length fails and the message is kept.
func wrongLength(t *testing.T, ranks []transport.Mesh) {
	for i, early := range []bool{true, false} {
		var r transport.Recv
		short := make([]byte, 5)
		if early {
			ranks[1].Post(&r, 0, tag(i, 0), short)
		}
		send(t, ranks[0], 1, tag(i, 0), pattern(6, i))
		if !early {
			ranks[1].Post(&r, 0, tag(i, 0), short)
		}
		wantError(t, r.Wait(patience), transport.ErrLength, "receive", 1, 0)
		expect(t, ranks[1], 0, tag(i, 0), pattern(6, i))
	}
}

// wrongOperation checks that receives of a different operation than the peer's fail immediately,
// for any part, order and length. Other operations continue, and the message can still be received.
func wrongOperation(t *testing.T, ranks []transport.Mesh) {
	signed := func(seq, part int, sig uint64) transport.Tag {
		return transport.Tag{Seq: uint32(seq), Part: uint32(part), Sig: sig}
	}
	check := func(err error, mine, theirs uint64) {
		t.Helper()
		wantError(t, err, nil, "receive", 1, 0)
		var m *transport.MismatchError
		if !errors.As(err, &m) || m.Mine != mine || m.Theirs != theirs {
			t.Errorf("got %v, want a mismatch of %#x here and %#x there", err, mine, theirs)
		}
	}
	const mine, theirs = 1 << 60, 7
	for seq, part := range []int{3, 9} { // the posted part, and a different part
		var rs [3]transport.Recv
		var other transport.Recv
		dst := make([]byte, 3)
		for i := range rs {
			ranks[1].Post(&rs[i], 0, signed(seq, 3+i*64, mine), make([]byte, 1))
		}
		ranks[1].Post(&other, 0, signed(seq+64, part, mine), dst)
		send(t, ranks[0], 1, signed(seq, part, theirs), pattern(5, seq))
		for i := range rs {
			check(rs[i].Wait(patience), mine, theirs)
		}
		ranks[1].Post(&rs[0], 0, signed(seq, 77, 0), make([]byte, 5))
		check(rs[0].Wait(patience), 0, theirs)
		expect(t, ranks[1], 0, signed(seq, part, theirs), pattern(5, seq))
		send(t, ranks[0], 1, signed(seq+64, part, mine), pattern(3, seq))
		if err := other.Wait(patience); err != nil || !bytes.Equal(dst, pattern(3, seq)) {
			t.Errorf("another operation suffers: %v, %v", err, dst)
		}
	}
}

func sameTagTwice(t *testing.T, ranks []transport.Mesh) {
	var first, second transport.Recv
	dst := make([]byte, 2)
	ranks[1].Post(&first, 0, tag(0, 0), dst)
	ranks[1].Post(&second, 0, tag(0, 0), make([]byte, 2))
	wantError(t, second.Wait(patience), nil, "receive", 1, 0)
	send(t, ranks[0], 1, tag(0, 0), []byte{1, 2})
	if err := first.Wait(patience); err != nil || dst[1] != 2 {
		t.Error(err, dst)
	}
}

// receiveTimesOut checks the error, and that a late message is kept for the next receive.
func receiveTimesOut(t *testing.T, ranks []transport.Mesh) {
	var r transport.Recv
	dst := []byte{1, 2, 3}
	ranks[1].Post(&r, 0, tag(0, 0), dst)
	wantError(t, r.Wait(soon), transport.ErrTimeout, "receive", 1, 0)
	send(t, ranks[0], 1, tag(0, 0), []byte{7, 8, 9})
	send(t, ranks[0], 1, tag(0, 1), nil)
	expect(t, ranks[1], 0, tag(0, 1), nil)
	if dst[0] != 1 {
		t.Error("a withdrawn receive was written to")
	}
	expect(t, ranks[1], 0, tag(0, 0), []byte{7, 8, 9})
}

func polling(t *testing.T, ranks []transport.Mesh) {
	var r transport.Recv
	dst := make([]byte, 1)
	ranks[1].Post(&r, 0, tag(0, 0), dst)
	wantError(t, r.Wait(0), transport.ErrTimeout, "receive", 1, 0)
	send(t, ranks[0], 1, tag(0, 0), []byte{5})
	for start := time.Now(); ; {
		ranks[1].Post(&r, 0, tag(0, 0), dst)
		err := r.Wait(0)
		if err == nil {
			break
		}
		if time.Since(start) > patience {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// withdrawn checks that a receive that gives up at any moment of a large message's arrival never
// loses the message, and that its dst is not written afterwards.
func withdrawn(t *testing.T, ranks []transport.Mesh) {
	const n = 2 << 20
	want := pattern(n, 1)
	for i := range 6 {
		sent := make(chan error, 1)
		go func() { sent <- ranks[0].Send(1, tag(i, 0), want, patience) }()
		var r transport.Recv
		dst := make([]byte, n)
		for start := time.Now(); ; {
			ranks[1].Post(&r, 0, tag(i, 0), dst)
			err := r.Wait(time.Duration(i*60) * time.Microsecond)
			if err == nil {
				break
			}
			if !errors.Is(err, transport.ErrTimeout) || time.Since(start) > patience {
				t.Fatal(err)
			}
			dst[0] = 0xAA // the race detector finds late writers
		}
		if !bytes.Equal(dst, want) {
			t.Fatal("the message was damaged")
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
	}
}

// traffic checks that payloads are counted exactly, and wire bytes equally on both ends.
func traffic(t *testing.T, ranks []transport.Mesh) {
	before := make([]transport.Traffic, len(ranks))
	for i, m := range ranks {
		before[i] = m.Traffic()
	}
	var sent, received [3]int64
	var messages [3]int64
	for i := range 30 {
		from, to, n := i%3, (i+1+i/3%2)%3, i*i*10
		send(t, ranks[from], to, tag(0, i), pattern(n, i))
		expect(t, ranks[to], from, tag(0, i), pattern(n, i))
		sent[from] += int64(n)
		received[to] += int64(n)
		messages[from]++
	}
	var wireSent, wireReceived int64
	for i, m := range ranks {
		got := m.Traffic()
		if got.PayloadSent != sent[i] || got.PayloadReceived != received[i] || got.MessagesSent != messages[i] {
			t.Errorf("rank %d: got %+v, want %d sent in %d messages, %d received", i, got, sent[i], messages[i], received[i])
		}
		if got.WireSent-before[i].WireSent < sent[i] || got.WireReceived-before[i].WireReceived < received[i] {
			t.Errorf("rank %d: wire bytes are below the payload's: %+v after %+v", i, got, before[i])
		}
		wireSent += got.WireSent
		wireReceived += got.WireReceived
	}
	if wireSent != wireReceived {
		t.Errorf("%d bytes were put on the wire, %d taken from it", wireSent, wireReceived)
	}
}
