package tcp

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// readAhead is how much a stream reads beyond a header that it waits for:
// enough that a small message costs one system call, and little enough that
// copying it out costs a large one nothing to speak of.
const readAhead = 32 << 10

// largePayload is from when on reading a header alone is cheaper than copying
// what is read with it.
const largePayload = 64 << 10

// maxRead bounds one system call's copying, which cannot be preempted.
const maxRead = 1 << 20

// tick is how often a stream whose receives are polled for looks whether they
// still are. As long as a message may lie unread when nobody waits for one.
const tick = time.Millisecond

// stream is one connection with a peer.
//
// Whoever holds the reader's role moves bytes from the socket to where they
// belong, as far as they have come, and can stop anywhere: what it was at is
// kept in the stream. Those who wait for a message take the role for a while
// (peer.Poll); the stream's own goroutine takes it when nobody else does.
type stream struct {
	peer   *peer
	sock   socket
	within bool // the peer is on this host

	role   atomic.Uint32 // 1 while somebody reads
	armed  atomic.Bool   // the stream's goroutine will hear of what comes
	polls  atomic.Uint32 // how often somebody polled
	wanted atomic.Bool   // a slice that is being filled is wanted back

	// The reader's.
	buf      [readAhead]byte // buf[from:to] is read but not used
	from, to int
	dry      bool // the last read took all there was
	next     [2][]byte
	phase    phase
	head     wire.Header
	arrival  transport.Arrival
	got      int    // bytes of the payload
	sum      uint32 // of them, where the frame has one
	last     []byte // the payload of an abort frame
	ended    error  // why nothing more will be read
	spin     time.Duration
	received atomic.Int64

	writer
}

// phase is what a stream reads next.
type phase uint8

const (
	header   phase = iota
	place          // the header is there, its message has no place yet
	payload        // the message's bytes
	trailer        // their checksum
	nothing        // bytes to be forgotten
	farewell       // why the peer aborted
)

func newStream(p *peer, link *transport.Link, cfg Config) (*stream, error) {
	conn, ahead := link.Detach()
	s := &stream{peer: p, spin: shortSpin}
	s.to = copy(s.buf[:], ahead)
	s.received.Store(link.Received())
	s.writer.init(s, link.Sent())
	secure, _ := conn.(*transport.SecureConn)
	if secure != nil {
		conn = secure.NetConn()
	}
	c, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, fmt.Errorf("%T is no TCP connection", conn)
	}
	s.within = withinHost(c)
	err := tune(c, cfg)
	if err == nil {
		s.sock, err = p.mesh.open(c)
	}
	if err == nil && secure != nil {
		s.sock = newTLSSocket(s.sock, secure)
	}
	return s, err
}

// take takes the reader's role if it is free.
func (s *stream) take() bool { return s.role.CompareAndSwap(0, 1) }

// release gives the role back. Somebody who has parked, or wants back a slice
// that is being filled, may have found it taken and relies on this.
func (s *stream) release() {
	for {
		s.role.Store(0)
		if s.peer.sleepers.Load() > 0 {
			s.arm()
		}
		if !s.wanted.Load() || !s.take() {
			return
		}
		s.divert()
	}
}

// arm has the stream's goroutine read what comes from now on.
func (s *stream) arm() {
	if !s.armed.Swap(true) {
		s.sock.arm()
	}
}

// divert lets go of a slice that its owner wants back. It needs the role.
func (s *stream) divert() {
	s.wanted.Store(false)
	if s.phase == payload || s.phase == trailer {
		s.peer.in.Divert(&s.arrival, s.got)
	}
}

// run is the stream's goroutine: it reads when nobody polls, until the
// connection ends.
func (s *stream) run() {
	s.arm()
	var deadline time.Time
	for seen := s.polls.Load(); ; {
		called := s.sock.awaitRead(deadline)
		s.armed.Store(false)
		polls := s.polls.Load()
		if !called && polls != seen || !s.take() {
			seen, deadline = polls, time.Now().Add(tick)
			continue
		}
		seen, deadline = polls, time.Time{}
		if s.ended == nil {
			if err := s.pull(nil, true); err != errAgain {
				s.ended = err
			}
		}
		if s.ended != nil {
			break // with the role: nobody reads any more
		}
		s.arm()
		s.release()
	}
	s.peer.streamEnded(s)
}

// poll reads what is there and reports whether it makes sense to try again. It
// needs the role.
func (s *stream) poll(until *transport.Recv) bool {
	if s.ended != nil {
		return false
	}
	err := s.pull(until, false)
	if err == errAgain {
		return true
	}
	if err != errRoom {
		s.ended = err
	}
	s.sock.wake() // its goroutine sees to it
	return false
}

// errRoom: the next message is not asked for and cannot be kept.
var errRoom = fmt.Errorf("%w: no room", errAgain)

// pull moves what has come to where it belongs until there is nothing more,
// which is errAgain, or, once until is done, until what was read ahead is used.
// Only with wait does it wait for a message's room. Any other error ends the
// connection.
func (s *stream) pull(until *transport.Recv, wait bool) error {
	for {
		if s.phase == header {
			if s.to-s.from < wire.HeaderSize {
				if until != nil && until.Done() {
					return errAgain
				}
				if err := s.fill(); err != nil {
					return err
				}
				continue
			}
			h, err := wire.ParseHeader((*[wire.HeaderSize]byte)(s.buf[s.from:]), wire.MaxPayload)
			if err != nil {
				return err
			}
			s.use(wire.HeaderSize)
			s.head, s.got, s.sum = h, 0, 0
			if err := s.open(); err != nil {
				return err
			}
			continue
		}
		if err := s.body(wait); err != nil {
			return err
		}
	}
}

// open decides what becomes of the frame whose header has come.
func (s *stream) open() error {
	switch h := s.head; h.Type {
	case wire.Data, wire.Summed:
		s.phase = place
	case wire.Goodbye:
		return lastWord{transport.ErrGoodbye}
	case wire.Abort:
		if h.Length > maxAbort {
			return fmt.Errorf("an abort frame of %d bytes, the limit is %d", h.Length, maxAbort)
		}
		s.last, s.phase = make([]byte, h.Length), farewell
	default:
		return fmt.Errorf("a %v frame that does not belong into a mesh", h.Type)
	}
	return nil
}

// body brings the frame forward.
func (s *stream) body(wait bool) error {
	switch s.phase {
	case place:
		return s.place(wait)
	case payload:
		if err := s.read(s.arrival.Bytes()); err != nil {
			return err
		}
		if s.head.Type == wire.Summed {
			s.phase = trailer
			return nil
		}
		s.deliver()
	case trailer:
		if err := s.check(); err != nil {
			return err
		}
		s.deliver()
	case farewell:
		if err := s.read(s.last); err != nil {
			return err
		}
		why, malformed := decodeAbort(s.last, s.peer.mesh.size)
		if malformed != nil {
			return malformed
		}
		return lastWord{why}
	case nothing:
		return s.skip()
	}
	return nil
}

// check compares the payload with its checksum, which follows it.
func (s *stream) check() error {
	for s.to-s.from < wire.SumSize {
		if err := s.fill(); err != nil {
			return unfinished(err)
		}
	}
	want := binary.LittleEndian.Uint32(s.buf[s.from:])
	s.use(wire.SumSize)
	if want != s.sum {
		return fmt.Errorf("%w: message %d/%d/%d of %d bytes, sum %#x, expected %#x",
			wire.ErrSum, s.head.Group, s.head.Seq, s.head.Part, s.head.Length, s.sum, want)
	}
	return nil
}

// deliver hands the message over. It is counted before it can be seen, so that a
// receiver that has the message also finds it in its counters.
func (s *stream) deliver() {
	s.peer.mesh.received.Add(int64(s.head.Length))
	s.phase = header
	s.peer.in.End(s.arrival, nil)
}

// place finds out where the message belongs. After this rank has stopped that is
// nowhere, and the stream reads on only so that the peer gets rid of what it is
// sending.
func (s *stream) place(wait bool) (err error) {
	h, ok := s.head, true
	tag := transport.Tag{Group: h.Group, Seq: h.Seq, Part: h.Part, Sig: h.Sig}
	if wait {
		s.arrival, err = s.peer.in.Begin(tag, h.Length, -1)
	} else {
		s.arrival, ok, err = s.peer.in.TryBegin(tag, h.Length)
	}
	switch {
	case !ok:
		return errRoom
	case err == nil:
		s.phase = payload
	case s.peer.mesh.down.Load() != nil:
		s.phase = nothing
	default:
		return err
	}
	return nil
}

// read reads the payload to p, of which s.got bytes are there. With its end it
// takes the header that follows.
func (s *stream) read(p []byte) error {
	for s.got < len(p) {
		if s.from < s.to {
			n := copy(p[s.got:], s.buf[s.from:s.to])
			s.add(p[s.got : s.got+n])
			s.use(n)
			continue
		}
		if s.dry {
			s.dry = false
			return errAgain
		}
		rest := p[s.got:min(len(p), s.got+maxRead)]
		s.next = [2][]byte{rest, s.buf[:wire.HeaderSize+s.trailing()]}
		n, err := s.sock.read(s.next[:])
		s.next[0] = nil
		if err != nil {
			return unfinished(err)
		}
		s.dry = n < len(rest)
		mine := min(n, len(rest))
		s.add(rest[:mine])
		s.to = n - mine
		s.received.Add(int64(mine))
	}
	return nil
}

// add counts bytes of the payload that have come, and sums them.
func (s *stream) add(p []byte) {
	s.got += len(p)
	if s.head.Type == wire.Summed {
		s.sum = wire.Sum(s.sum, p)
	}
}

// trailing is how many bytes follow the payload.
func (s *stream) trailing() int {
	if s.head.Type == wire.Summed {
		return wire.SumSize
	}
	return 0
}

// skip forgets the payload.
func (s *stream) skip() error {
	for end := s.head.Length + s.trailing(); s.got < end; {
		if s.from == s.to {
			if err := s.fill(); err != nil {
				return unfinished(err)
			}
		}
		n := min(end-s.got, s.to-s.from)
		s.use(n)
		s.got += n
	}
	s.phase = header
	return nil
}

// unfinished is what the end of a connection means within a frame.
func unfinished(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// fill reads ahead.
func (s *stream) fill() error {
	if s.dry {
		s.dry = false
		return errAgain
	}
	if s.from > 0 {
		s.to = copy(s.buf[:], s.buf[s.from:s.to])
		s.from = 0
	}
	end := readAhead
	if s.head.Length >= largePayload && s.phase == header {
		end = wire.HeaderSize // what follows is probably large too and goes to its place
	}
	s.next[0] = s.buf[s.to:end]
	n, err := s.sock.read(s.next[:1])
	if err != nil {
		if s.to > 0 {
			err = unfinished(err)
		}
		return err
	}
	s.dry = n < len(s.next[0])
	s.to += n
	return nil
}

// use counts what is taken from the bytes read ahead.
func (s *stream) use(n int) {
	s.from += n
	s.received.Add(int64(n))
	if s.from == s.to {
		s.from, s.to = 0, 0
	}
}

// lastWord is a frame after which no other follows.
type lastWord struct{ cause error }

func (l lastWord) Error() string { return l.cause.Error() }
