package tcp

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// peer is this rank's side of its connections with a rank, and a transport.Driver.
type peer struct {
	mesh      *Mesh
	rank      int
	in        *transport.Inbox
	streams   []*stream
	sleepers  atomic.Int32          // parked receivers
	closedBy  atomic.Pointer[error] // reason why sends to the peer fail
	open      atomic.Int32          // streams with a running reader
	farewells atomic.Int32          // streams that ended in good order
	done      chan struct{}         // closed when all streams have ended
}

func newPeer(m *Mesh, rank int, links []*transport.Link, cfg Config, pool *transport.BufferPool) (*peer, error) {
	p := &peer{mesh: m, rank: rank, done: make(chan struct{})}
	p.in = transport.NewInbox(transport.InboxConfig{
		Rank: cfg.Rank, From: rank, Limit: cfg.MaxUnexpectedBytes, Pool: pool, Driver: p,
	})
	for _, l := range links {
		s, err := newStream(p, l, cfg)
		if err != nil {
			p.close()
			return nil, fmt.Errorf("the connection with rank %d: %w", rank, err)
		}
		p.streams = append(p.streams, s)
	}
	p.open.Store(int32(len(p.streams)))
	return p, nil
}

// Park makes the streams' own goroutines read from now on. See transport.Driver.
func (p *peer) Park() {
	p.sleepers.Add(1)
	for _, s := range p.streams {
		if s.role.Load() == 0 { // otherwise the reader arms the stream when it releases the role
			s.arm()
		}
	}
}

// Unpark ends Park.
func (p *peer) Unpark() { p.sleepers.Add(-1) }

// Interrupt makes the streams' readers return slices to owners that wait, at the latest on release.
func (p *peer) Interrupt() {
	for _, s := range p.streams {
		s.wanted.Store(true)
		if s.take() {
			s.release()
		}
	}
}

// stream returns the stream of a message. Both ends compute the stream from the tag alone.
func (p *peer) stream(tag transport.Tag, n int) *stream {
	if len(p.streams) == 1 || n < StreamBytes {
		return p.streams[0]
	}
	return p.streams[(tag.Part+tag.Seq)%uint32(len(p.streams))]
}

// streamEnded reports the end of a stream's reader to the peer, the inbox and the mesh.
func (p *peer) streamEnded(s *stream) {
	defer func() {
		if p.open.Add(-1) == 0 {
			close(p.done)
		}
	}()
	err := s.ended
	if s.phase == payload || s.phase == trailer {
		p.in.End(s.arrival, p.lost(err))
	}
	last := lastWord{}
	if !errors.As(err, &last) {
		err = p.lost(err)
		p.closedBy.CompareAndSwap(nil, &err)
		p.in.Break(err)
		if p.mesh.down.Load() != nil {
			s.sock.close() // reply to our last frame; the other streams may still send their last frames
		} else {
			p.close() // one lost stream means a lost peer
		}
		return
	}
	err = last.cause
	if by := (*transport.AbortError)(nil); errors.As(err, &by) {
		p.mesh.stop(err)
	}
	p.closedBy.CompareAndSwap(nil, &err)
	if p.farewells.Add(1) == int32(len(p.streams)) {
		p.in.Break(err) // no message is left on any stream
	}
	// Replying with our own end lets the peer close immediately.
	s.closeWrite(grace, err)
	s.sock.close()
}

// lost returns the error for a connection that ended without a last frame.
func (p *peer) lost(err error) error {
	if down := p.mesh.down.Load(); down != nil {
		return *down
	}
	lost := transport.Lost(p.rank)
	switch errno := syscall.Errno(0); {
	case err == io.EOF, errors.Is(err, errClosed):
	case err == io.ErrUnexpectedEOF, errors.As(err, &errno):
		lost.Reason = fmt.Sprintf("%s (%v)", lost.Reason, err)
	default:
		lost.Reason = fmt.Sprintf("what it sends cannot be used: %v", err)
	}
	return lost
}

// sendFault returns the error of a failed write. The connection's own error is unspecific; the
// peer's last frame, if any, is read first.
func (p *peer) sendFault(err error) error {
	if !transport.TimedOut(err) && !errors.Is(err, wire.ErrTooLong) {
		wait := time.NewTimer(grace)
		defer wait.Stop()
		select {
		case <-p.done:
		case <-wait.C:
		}
		if gone := p.closedBy.Load(); gone != nil {
			err = *gone
		}
	}
	if down := p.mesh.down.Load(); down != nil {
		return *down
	}
	return err
}

// finish ends the readers: after the peer's reply to our last frame, or when patience ends.
func (p *peer) finish(patience *time.Timer) {
	select {
	case <-p.done:
	case <-patience.C:
		patience.Reset(0) // fires for the other peers too
	}
	p.close()
	<-p.done
}

func (p *peer) close() {
	for _, s := range p.streams {
		s.sock.close()
		s.sock.wake()
	}
}
