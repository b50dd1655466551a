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

// readAhead is the number of bytes that a stream reads beyond an expected header: enough for a
// small message in one system call, and a negligible copy for a large message.
const readAhead = 32 << 10

// largePayload is the size from which reading a header alone is cheaper than copying payload.
const largePayload = 64 << 10

// maxRead limits the copying of a system call, because system calls cannot be preempted.
const maxRead = 1 << 20

// tick is the interval at which a stream's goroutine checks that polling continues. A message can
// stay unread for a tick when no receiver waits.
const tick = time.Millisecond

// stream is one connection with a peer.
//
// The holder of the reader's role moves available bytes from the socket to their destinations and
// can stop anywhere: the state is in the stream. Waiting receivers take the role temporarily
// (peer.Poll); otherwise the stream's own goroutine has the role.
type stream struct {
	peer   *peer
	sock   socket
	within bool // same host as the peer

	role   atomic.Uint32 // 1 while a goroutine reads
	armed  atomic.Bool   // stream's goroutine is notified of arriving data
	polls  atomic.Uint32 // number of polls
	wanted atomic.Bool   // set when the owner of a partly filled slice wants the slice back

	// buf and the fields below belong to the reader.
	buf      [readAhead]byte // buf[from:to] is read but not used
	from, to int
	dry      bool // last read took all available bytes
	next     [2][]byte
	phase    phase
	head     wire.Header
	arrival  transport.Arrival
	got      int    // payload bytes read
	sum      uint32 // checksum of the payload until now, for frames with a checksum
	last     []byte // payload of an abort frame
	ended    error  // reason for the end of reading
	spin     time.Duration
	received atomic.Int64

	writer
}

// phase is the part of a frame that a stream reads next.
type phase uint8

const (
	header   phase = iota
	place          // header read, message without a destination yet
	payload        // message bytes
	trailer        // checksum
	nothing        // bytes to discard
	farewell       // reason for the peer's abort
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

func (s *stream) take() bool { return s.role.CompareAndSwap(0, 1) }

// release releases the reader's role, and serves goroutines that found the role taken: parked
// receivers, and owners of partly filled slices.
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

// arm makes the stream's goroutine read data that arrives from now on.
func (s *stream) arm() {
	if !s.armed.Swap(true) {
		s.sock.arm()
	}
}

// divert releases a slice to its waiting owner. divert needs the reader's role.
func (s *stream) divert() {
	s.wanted.Store(false)
	if s.phase == payload || s.phase == trailer {
		s.peer.in.Divert(&s.arrival, s.got)
	}
}

// run is the stream's goroutine: run reads while no receiver polls, until the connection ends.
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
			break // keeps the role: all reading has ended
		}
		s.arm()
		s.release()
	}
	s.peer.streamEnded(s)
}

// poll reads the available bytes and reports whether to retry. poll needs the reader's role.
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
	s.sock.wake() // the stream's goroutine handles the error
	return false
}

// errRoom means that the next message has no receive and exceeds the limit.
var errRoom = fmt.Errorf("%w: no room", errAgain)

// pull moves available bytes to their destinations. pull returns errAgain without more bytes, or,
// once until is done, after the bytes read ahead. pull waits for a message's space only if wait is
// set. All other errors end the connection.
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

// open starts handling a frame after its header.
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

// check compares the payload with the checksum that follows.
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

// deliver hands the message to the inbox. The counters change first, so that a receiver of the
// message also finds the message in the counters.
func (s *stream) deliver() {
	s.peer.mesh.received.Add(int64(s.head.Length))
	s.phase = header
	s.peer.in.End(s.arrival, nil)
}

// place chooses the destination of the message. After this rank has stopped the message is
// discarded, and the stream reads only to let the peer finish sending.
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

// read reads the payload to p from index s.got on, and with the end of p also the next header.
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

// add counts received payload bytes and adds them to the checksum.
func (s *stream) add(p []byte) {
	s.got += len(p)
	if s.head.Type == wire.Summed {
		s.sum = wire.Sum(s.sum, p)
	}
}

// trailing returns the number of bytes after the payload.
func (s *stream) trailing() int {
	if s.head.Type == wire.Summed {
		return wire.SumSize
	}
	return 0
}

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

// unfinished maps the end of a connection within a frame to an error.
func unfinished(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

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
		end = wire.HeaderSize // a large payload probably follows, which is read directly to its destination
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

// use consumes n bytes of the read-ahead buffer.
func (s *stream) use(n int) {
	s.from += n
	s.received.Add(int64(n))
	if s.from == s.to {
		s.from, s.to = 0, 0
	}
}

type lastWord struct{ cause error }

func (l lastWord) Error() string { return l.cause.Error() }
