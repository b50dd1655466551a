package tcp

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/transport"
	"github.com/ringo-ml/ringo/wire"
)

// peer is this rank's side of the connection with one other.
type peer struct {
	mesh *Mesh
	rank int
	link *transport.Link
	in   *transport.Inbox
	gone atomic.Pointer[error] // why nothing can be sent to it any more
	done chan struct{}         // closed when its reader has ended
}

func newPeer(m *Mesh, rank int, link *transport.Link, cfg transport.InboxConfig) *peer {
	p := &peer{mesh: m, rank: rank, link: link, done: make(chan struct{})}
	cfg.Interrupt = p.interrupt
	p.in = transport.NewInbox(cfg)
	return p
}

// interrupt makes the reader call Divert soon.
func (p *peer) interrupt() { p.link.SetReadDeadline(time.Unix(1, 0)) }

// read is the reader: it brings messages until the connection ends, and then
// says why it did.
func (p *peer) read() {
	defer close(p.done)
	err := p.readAll()
	if last := (lastWord{}); errors.As(err, &last) {
		err = last.cause
		p.gone.Store(&err)
		p.in.Break(err)
		// Answering with an end of our own lets the peer close at once.
		p.link.CloseWrite(grace, err)
	} else {
		err = p.lost(err)
		p.gone.Store(&err)
		p.in.Break(err)
	}
	p.link.Close()
}

// lastWord is a frame after which no other follows.
type lastWord struct{ cause error }

func (l lastWord) Error() string { return l.cause.Error() }

func (p *peer) readAll() error {
	for {
		h, err := p.link.ReadHeader()
		if errors.Is(err, transport.ErrTimeout) {
			p.link.SetReadDeadline(time.Time{}) // an interruption that came late
			continue
		}
		if err != nil {
			return err
		}
		switch h.Type {
		case wire.Data:
			err = p.message(h)
		case wire.Goodbye:
			return lastWord{transport.ErrGoodbye}
		case wire.Abort:
			return p.aborted(h)
		default:
			err = fmt.Errorf("a %v frame that does not belong into a mesh", h.Type)
		}
		if err != nil {
			return err
		}
	}
}

// message brings one message to its receive. After this rank has stopped it
// only reads on, so that the peer gets rid of what it is sending.
func (p *peer) message(h wire.Header) error {
	tag := transport.Tag{Group: h.Group, Seq: h.Seq, Part: h.Part, Sig: h.Sig}
	a, err := p.in.Begin(tag, h.Length, -1)
	if p.mesh.down.Load() != nil && err != nil {
		return p.discard(h.Length)
	}
	if err != nil {
		return err
	}
	if err := p.fill(&a); err != nil {
		p.in.End(a, p.lost(err))
		return err
	}
	// Counted before it can be seen, so that a receiver that has the message
	// also finds it in its counters.
	p.mesh.received.Add(int64(h.Length))
	p.in.End(a, nil)
	return nil
}

// fill reads the payload to where it belongs, which may change on the way.
func (p *peer) fill(a *transport.Arrival) error {
	buf := a.Bytes()
	for got := 0; ; {
		n, err := p.link.ReadPayload(buf[got:])
		got += n
		if err == nil || !errors.Is(err, transport.ErrTimeout) {
			return err
		}
		p.link.SetReadDeadline(time.Time{})
		p.in.Divert(a, got)
		buf = a.Bytes()
	}
}

func (p *peer) discard(n int) error {
	for {
		left, err := p.link.Discard(n)
		if !errors.Is(err, transport.ErrTimeout) {
			return err
		}
		p.link.SetReadDeadline(time.Time{})
		n = left
	}
}

// aborted handles the peer's Abort.
func (p *peer) aborted(h wire.Header) error {
	if h.Length > maxAbort {
		return fmt.Errorf("an abort frame of %d bytes, the limit is %d", h.Length, maxAbort)
	}
	payload := make([]byte, h.Length)
	for got := 0; got < len(payload); {
		n, err := p.link.ReadPayload(payload[got:])
		got += n
		if err != nil && !errors.Is(err, transport.ErrTimeout) {
			return err
		}
		if err != nil {
			p.link.SetReadDeadline(time.Time{})
		}
	}
	err, malformed := decodeAbort(payload)
	if malformed != nil {
		return malformed
	}
	p.mesh.stop(err)
	return lastWord{err}
}

// lost is what a connection that ended without a last word means.
func (p *peer) lost(err error) error {
	if down := p.mesh.down.Load(); down != nil {
		return *down
	}
	lost := transport.Lost(p.rank)
	if err != io.EOF && !errors.Is(err, transport.ErrClosed) {
		lost.Why = fmt.Sprintf("%s (%v)", lost.Why, err)
	}
	return lost
}

// sendFault returns why a frame could not be written. The connection's own
// error says little; what the peer said last, if anything, is being read.
func (p *peer) sendFault(err error) error {
	if !errors.Is(err, transport.ErrTimeout) && !errors.Is(err, wire.ErrTooLong) {
		wait := time.NewTimer(grace)
		defer wait.Stop()
		select {
		case <-p.done:
		case <-wait.C:
		}
		if gone := p.gone.Load(); gone != nil {
			err = *gone
		}
	}
	if down := p.mesh.down.Load(); down != nil {
		return *down
	}
	return err
}

// finish ends the reader: by itself when the peer has read our last frame and
// answered it, or else when patience ends.
func (p *peer) finish(patience *time.Timer) {
	select {
	case <-p.done:
	case <-patience.C:
		patience.Reset(0) // for the others too
	}
	p.link.Close()
	<-p.done
}
