package tcp

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// grace is the time for each peer when the mesh ends: to finish the current frame, to write the
// last frame, and to get the peer's reply.
const grace = time.Second

// Mesh is one rank of a mesh between processes. Mesh implements transport.Mesh.
type Mesh struct {
	rank, size int
	peers      []*peer // nil at the index of this rank
	open       func(*net.TCPConn) (socket, error)
	manners    manners
	frame      wire.Type // frame type of messages
	lending    lending

	last    sync.Once             // guards the last frames to the peers
	down    atomic.Pointer[error] // reason for this rank's end, set once
	readers sync.WaitGroup

	sent, received, messages atomic.Int64
}

// newMesh creates a mesh of links, by rank and stream, and takes ownership of them.
func newMesh(cfg Config, links [][]*transport.Link) (*Mesh, error) {
	m := &Mesh{rank: cfg.Rank, size: cfg.Size, peers: make([]*peer, cfg.Size), open: openSocket}
	m.manners = mannersOf(cfg)
	m.lending = lending{way: cfg.Lending, crowded: m.manners.crowded}
	if m.frame = wire.Data; cfg.Checksum {
		m.frame = wire.Summed
	}
	if cfg.open != nil {
		m.open = cfg.open
	}
	pool := new(transport.BufferPool)
	for r := range links {
		if links[r] == nil {
			continue
		}
		var err error
		if m.peers[r], err = newPeer(m, r, links[r], cfg, pool); err != nil {
			m.closePeers()
			return nil, err
		}
	}
	for _, p := range m.peers {
		if p == nil {
			continue
		}
		for _, s := range p.streams {
			m.readers.Go(s.run)
		}
	}
	return m, nil
}

// closePeers closes the connections of a mesh after a failed newMesh.
func (m *Mesh) closePeers() {
	for _, p := range m.peers {
		if p != nil {
			p.close()
		}
	}
}

// Rank returns this rank's number.
func (m *Mesh) Rank() int { return m.rank }

// Size returns the number of ranks.
func (m *Mesh) Size() int { return m.size }

// Send writes p to the connection with the peer. See transport.Mesh. A message has at most
// wire.MaxPayload bytes. A lost peer, or no progress for timeout, is an error. After a partly
// written message the connection sends no further messages.
func (m *Mesh) Send(to int, tag transport.Tag, p []byte, timeout time.Duration) error {
	return m.deliver(to, tag, p, timeout, false)
}

// SendZeroCopy is Send without a copy, if it pays (Config.Lending). See transport.ZeroCopySender.
func (m *Mesh) SendZeroCopy(to int, tag transport.Tag, p []byte, timeout time.Duration) error {
	return m.deliver(to, tag, p, timeout, true)
}

func (m *Mesh) deliver(to int, tag transport.Tag, p []byte, timeout time.Duration, SendZeroCopy bool) error {
	if err := m.send(to, tag, p, timeout, SendZeroCopy); err != nil {
		return &transport.Error{Op: "send", Rank: m.rank, Peer: to, Tag: tag, Err: err}
	}
	m.sent.Add(int64(len(p)))
	m.messages.Add(1)
	return nil
}

func (m *Mesh) send(to int, tag transport.Tag, p []byte, timeout time.Duration, SendZeroCopy bool) error {
	if err := transport.CheckPeer(m, to); err != nil {
		return err
	}
	if down := m.down.Load(); down != nil {
		return *down
	}
	peer := m.peers[to]
	if gone := peer.closedBy.Load(); gone != nil {
		return *gone
	}
	h := wire.Header{Type: m.frame, Group: tag.Group, Seq: tag.Seq, Part: tag.Part, Sig: tag.Sig}
	s := peer.stream(tag, len(p))
	SendZeroCopy = SendZeroCopy && len(p) >= lendFrom && m.frame == wire.Data && m.lending.pays(s.within)
	err := s.send(h, p, timeout, SendZeroCopy)
	if err != nil {
		return peer.sendFault(err)
	}
	return nil
}

// Post posts a receive. See transport.Mesh.
func (m *Mesh) Post(r *transport.Recv, from int, tag transport.Tag, dst []byte) {
	if err := transport.CheckPeer(m, from); err != nil {
		transport.PostFault(r, &transport.Error{Op: "receive", Rank: m.rank, Peer: from, Tag: tag, Err: err})
		return
	}
	m.peers[from].in.Post(r, tag, dst)
}

// Fault returns the reason why no more messages arrive from a peer. See transport.Mesh.
func (m *Mesh) Fault(peer int) error {
	if down := m.down.Load(); down != nil {
		return *down
	}
	if err := transport.CheckPeer(m, peer); err != nil {
		return err
	}
	if gone := m.peers[peer].closedBy.Load(); gone != nil {
		return *gone
	}
	return nil
}

// Traffic returns the counters. Wire bytes exclude only the headers of TCP and IP.
func (m *Mesh) Traffic() transport.Traffic {
	t := transport.Traffic{
		PayloadSent: m.sent.Load(), PayloadReceived: m.received.Load(),
		MessagesSent: m.messages.Load(),
	}
	for _, p := range m.peers {
		if p == nil {
			continue
		}
		for _, s := range p.streams {
			t.WireSent += s.sent.Load()
			t.WireReceived += s.received.Load()
		}
	}
	return t
}

// Abort fails this rank's operations with cause and the peers' operations with a
// *transport.AbortError. Abort returns when the peers are informed, after at most a second.
func (m *Mesh) Abort(cause error) {
	if m.stop(transport.Aborted(cause)) {
		m.last.Do(func() {
			m.sayLast(wire.Abort, encodeAbort(transport.NewAbortError(m.rank, cause)))
		})
	}
}

// Close leaves the mesh in good order: peers can receive messages already sent, and other
// operations with this rank fail with transport.ErrGoodbye. Close waits up to 2 s for slow peers.
func (m *Mesh) Close() error {
	m.stop(transport.ErrClosed)
	m.last.Do(m.sayGoodbye)
	patience := time.NewTimer(grace)
	defer patience.Stop()
	for _, p := range m.peers {
		if p != nil {
			p.finish(patience)
		}
	}
	m.readers.Wait()
	return nil
}

// stop fails all operations with err and reports whether this was the first call.
func (m *Mesh) stop(err error) bool {
	if !m.down.CompareAndSwap(nil, &err) {
		return false
	}
	for _, p := range m.peers {
		if p == nil {
			continue
		}
		p.in.Shut(err)
		for _, s := range p.streams {
			// A send in flight may succeed, but must not delay the end: its peer may be lost.
			s.sock.hurry(time.Now().Add(grace))
		}
	}
	return true
}

// sayGoodbye sends a goodbye to all peers. If a peer's Abort ended this rank, that AbortError
// replaces the goodbye: peers may read this frame first, and all ranks should name the same cause.
func (m *Mesh) sayGoodbye() {
	if by := (*transport.AbortError)(nil); errors.As(*m.down.Load(), &by) {
		m.sayLast(wire.Abort, encodeAbort(by))
		return
	}
	m.sayLast(wire.Goodbye, nil)
}

// sayLast sends every peer the last frames from this rank.
func (m *Mesh) sayLast(t wire.Type, payload []byte) {
	var all sync.WaitGroup
	for _, p := range m.peers {
		if p == nil || p.closedBy.Load() != nil {
			continue
		}
		for _, s := range p.streams {
			all.Go(func() {
				if s.finish(wire.Header{Type: t}, payload, grace, transport.ErrClosed) != nil {
					s.sock.close() // an orderly end is impossible
				}
			})
		}
	}
	all.Wait()
}

// Cut breaks the connections with a peer as a death would, for fault injection.
func (m *Mesh) Cut(peer int) {
	if transport.CheckPeer(m, peer) == nil {
		for _, s := range m.peers[peer].streams {
			s.sock.reset()
		}
	}
}
