package tcp

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// scripted is a socket whose other end says what is written down, in pieces.
type scripted struct {
	said   []byte
	pieces func() int // the length of the next; 0: nothing for now
	end    error
}

func (s *scripted) read(v [][]byte) (n int, err error) {
	piece := s.pieces()
	if piece == 0 {
		return 0, errAgain
	}
	if len(s.said) == 0 {
		return 0, s.end
	}
	for _, p := range v {
		m := copy(p[:min(len(p), piece)], s.said)
		s.said, piece, n = s.said[m:], piece-m, n+m
	}
	return n, nil
}

func (s *scripted) write(v [][]byte) (int, error)         { return 0, errAgain }
func (s *scripted) writeZeroCopy(v [][]byte) (int, error) { return s.write(v) }
func (s *scripted) takeBack()                             {}

func (s *scripted) arm()                       {}
func (s *scripted) awaitRead(time.Time) bool   { return true }
func (s *scripted) wake()                      {}
func (s *scripted) awaitWrite(time.Time) error { return errDeadline }
func (s *scripted) hurry(time.Time)            {}
func (s *scripted) block(time.Duration)        {}
func (s *scripted) closeWrite()                {}
func (s *scripted) reset()                     {}
func (s *scripted) close()                     {}

// frames are messages as they lie on the wire.
func frames(sum bool, payloads ...[]byte) []byte {
	var out []byte
	for i, p := range payloads {
		h := wire.Header{Type: wire.Data, Seq: uint32(i % 3), Part: uint32(i), Length: len(p)}
		if sum {
			h.Type = wire.Summed
		}
		var head [wire.HeaderSize]byte
		wire.PutHeader(&head, h)
		out = append(append(out, head[:]...), p...)
		if s := wire.Sum(0, p); sum {
			out = append(out, byte(s), byte(s>>8), byte(s>>16), byte(s>>24))
		}
	}
	return out
}

// reader is a stream that reads a script.
func reader(s *scripted, limit int64) *stream {
	m := &Mesh{rank: 0, size: 2, peers: make([]*peer, 2)}
	p := &peer{mesh: m, rank: 1, done: make(chan struct{})}
	m.peers[1] = p
	p.in = transport.NewInbox(transport.InboxConfig{From: 1, Limit: limit, Driver: p})
	p.streams = []*stream{{peer: p, sock: s, spin: shortSpin}}
	return p.streams[0]
}

// However the bytes come in pieces, and whenever the receives are posted, the
// messages are those that were sent.
func TestStreamInPieces(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 100 {
		var sent [][]byte
		for range 1 + rnd.IntN(12) {
			n := []int{0, 1, 31, 1000, readAhead - wire.HeaderSize, readAhead, largePayload + 7, 200_000}[rnd.IntN(8)]
			p := make([]byte, n)
			for i := range p {
				p[i] = byte(i*7 + len(sent))
			}
			sent = append(sent, p)
		}
		most := 1 << (4 + rnd.IntN(14))
		s := reader(&scripted{said: frames(round%2 == 0, sent...), pieces: func() int { return rnd.IntN(most) }, end: io.EOF}, 1<<30)
		rs, got := make([]transport.Recv, len(sent)), make([][]byte, len(sent))
		for next := 0; ; {
			if next < len(sent) && rnd.IntN(3) == 0 {
				got[next] = make([]byte, len(sent[next]))
				s.peer.in.Post(&rs[next], transport.Tag{Seq: uint32(next % 3), Part: uint32(next)}, got[next])
				next++
			}
			if err := s.pull(nil, false); err == io.EOF && next == len(sent) {
				break
			} else if err != errAgain && err != io.EOF {
				t.Fatal(err)
			}
		}
		for i := range sent {
			if !rs[i].Done() || rs[i].Wait(0) != nil || !bytes.Equal(got[i], sent[i]) {
				t.Fatalf("round %d: message %d of %d bytes is wrong", round, i, len(sent[i]))
			}
		}
	}
}

// full is a socket that takes nothing; this process is suspended for an hour during one of its waits for room.
type full struct {
	scripted
	suspended int // during which wait
	waits     int
}

func (f *full) awaitWrite(deadline time.Time) error {
	if f.waits++; f.waits == f.suspended {
		time.Sleep(time.Hour)
	}
	time.Sleep(time.Until(deadline))
	return errDeadline
}

// A send's timeout does not count time in which this process was suspended.
func TestSuspendedSend(t *testing.T) {
	const timeout = time.Second
	for suspended := 1; suspended <= 8; suspended++ {
		synctest.Test(t, func(t *testing.T) {
			sock := &full{scripted: scripted{pieces: func() int { return 0 }}, suspended: suspended}
			s := reader(&sock.scripted, 1)
			s.sock, s.peer.mesh.manners.crowded = sock, true
			s.writer.init(s, 0)
			start := time.Now()
			err := s.send(wire.Header{Type: wire.Data}, make([]byte, 100), timeout, false)
			if ran := time.Since(start) - time.Hour; !errors.Is(err, transport.ErrTimeout) || ran < timeout*4/5 || ran > timeout {
				t.Errorf("suspended in wait %d: %v after %v, want %v after about %v", suspended, err, ran, transport.ErrTimeout, timeout)
			}
		})
	}
}

// A receive that gives up gets its slice back from whoever is filling it as soon
// as that one stops, whichever stream it is on; the message is kept.
func TestSliceIsGivenBack(t *testing.T) {
	said := frames(false, make([]byte, StreamBytes))
	s := reader(&scripted{said: said, pieces: func() int { return 0 }}, 1<<20)
	p := s.peer
	quiet := &scripted{pieces: func() int { return 0 }}
	p.streams = []*stream{{peer: p, sock: quiet}, s, {peer: p, sock: quiet}}
	half := len(said) / 2
	s.sock.(*scripted).pieces = func() int { n := half; half = 0; return n }
	var r transport.Recv
	p.in.Post(&r, transport.Tag{}, make([]byte, StreamBytes))
	if !s.take() {
		t.Fatal("the role is taken at the start")
	}
	s.poll(nil) // half of the message, by somebody who goes on polling
	gaveUp := make(chan error, 1)
	go func() { gaveUp <- r.Wait(time.Millisecond) }()
	for start := time.Now(); !s.wanted.Load(); time.Sleep(time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatal("nobody was asked to let go")
		}
	}
	s.release()
	if err := <-gaveUp; !errors.Is(err, transport.ErrTimeout) {
		t.Fatal(err)
	}
	s.sock.(*scripted).pieces = func() int { return 1 << 20 }
	if !s.take() {
		t.Fatal("the role was not given back")
	}
	s.poll(nil)
	s.release()
	dst := make([]byte, StreamBytes)
	p.in.Post(&r, transport.Tag{}, dst)
	if err := r.Wait(0); err != nil {
		t.Error(err)
	}
}

// A peer that goes on sending and reads nothing does not keep a sender beyond its
// deadline, nor beyond the end of the mesh.
func TestASendEndsThoughThePeerSends(t *testing.T) {
	for name, end := range map[string]func(*Mesh){
		"deadline": func(*Mesh) {},
		"close":    func(m *Mesh) { m.down.Store(&transport.ErrClosed) },
	} {
		said := frames(false, make([]byte, largePayload))
		s := reader(&scripted{said: said, pieces: func() int { return 1 }, end: io.EOF}, 1<<20)
		s.writer.init(s, 0)
		timeout := time.Hour
		if end(s.peer.mesh); name == "deadline" {
			timeout = 0
		}
		if err := s.send(wire.Header{Type: wire.Data}, []byte("x"), timeout, false); !errors.Is(err, transport.ErrTimeout) {
			t.Errorf("%s: %v", name, err)
		}
		if got := s.received.Load(); got >= int64(len(said)) {
			t.Errorf("%s: all %d bytes that the peer had to say were read first", name, got)
		}
	}
}

// Whatever a peer sends, reading it ends in an error or waits for more, keeps no
// more than the limit and delivers nothing that was not sent.
func FuzzStream(f *testing.F) {
	good := append(frames(false, []byte("one"), nil), frames(true, []byte("three"))...)
	f.Add(good, uint8(7))
	f.Add(append(good, frames(false, make([]byte, 5000))...), uint8(255))
	f.Add(good[:len(good)-3], uint8(1))
	var h [wire.HeaderSize]byte
	wire.PutHeader(&h, wire.Header{Type: wire.Data, Length: wire.MaxPayload})
	f.Add(h[:], uint8(0))
	wire.PutHeader(&h, wire.Header{Type: wire.Abort, Length: 10})
	f.Add(append(h[:], make([]byte, 10)...), uint8(3))
	f.Fuzz(func(t *testing.T, said []byte, piece uint8) {
		const limit = 1 << 16
		s := reader(&scripted{said: said, pieces: func() int { return int(piece) + 1 }, end: io.EOF}, limit)
		var r transport.Recv
		dst := make([]byte, 3)
		s.peer.in.Post(&r, transport.Tag{}, dst)
		var err error
		for err = errAgain; err == errAgain; {
			err = s.pull(nil, false)
		}
		if s.received.Load() > int64(len(said)) {
			t.Errorf("%d bytes received of %d", s.received.Load(), len(said))
		}
		if r.Done() {
			if err := r.Wait(0); err == nil && !bytes.Contains(said, dst) {
				t.Errorf("delivered %q, which was not sent", dst)
			}
		}
	})
}

// A message above the limit that nobody asked for takes no memory.
func TestOversizedMessageTakesNoMemory(t *testing.T) {
	var h [wire.HeaderSize]byte
	wire.PutHeader(&h, wire.Header{Type: wire.Data, Length: wire.MaxPayload})
	s := reader(&scripted{said: h[:], pieces: func() int { return 1000 }}, 1<<20)
	if n := testing.AllocsPerRun(1, func() {
		if err := s.pull(nil, false); err != errRoom {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
