// Package mem is a mesh among goroutines of one process: every rank is a value,
// and a message is one copy into the receiver's slice. It serves tests, and
// programs that train on several goroutines.
package mem

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ringo-ml/ringo/transport"
)

// DefaultMaxUnexpectedBytes is how much a rank keeps from one peer for receives
// not yet posted.
const DefaultMaxUnexpectedBytes = 256 << 20

// New returns the n ranks of a mesh, n >= 1. Each is used by a goroutine, or
// several, of its own and closed on its own.
func New(n int) []transport.Mesh { return NewLimited(n, DefaultMaxUnexpectedBytes) }

// NewLimited is New with another limit on the bytes that a rank keeps from one
// peer for receives not yet posted; a sender beyond it waits.
func NewLimited(n int, maxUnexpectedBytes int64) []transport.Mesh {
	if n < 1 {
		panic(fmt.Sprintf("mem: a mesh of %d ranks", n))
	}
	ranks := make([]*Mesh, n)
	pool := new(transport.BufferPool)
	for i := range ranks {
		ranks[i] = &Mesh{rank: i, ranks: ranks, from: make([]*transport.Inbox, n)}
		for j := range n {
			ranks[i].from[j] = transport.NewInbox(transport.InboxConfig{
				Rank: i, From: j, Limit: maxUnexpectedBytes, Pool: pool,
			})
		}
	}
	out := make([]transport.Mesh, n)
	for i, m := range ranks {
		out[i] = m
	}
	return out
}

// NewShared is New with windows: memory of so many bytes for each rank's arena,
// and that for control. It is what processes of one host share, for tests, and
// for programs that reduce among goroutines.
func NewShared(n, arenaBytes int) []transport.Mesh {
	ranks := New(n)
	all := make([]int, n)
	arenas := make([][]byte, n)
	for i := range all {
		all[i], arenas[i] = i, pages(arenaBytes)
	}
	control := pages(n * transport.ControlBytes)
	for i, m := range ranks {
		m.(*Mesh).windows = &transport.SharedMemory{
			Ranks: all, Index: i, Control: control, Arenas: arenas,
			Cores: runtime.GOMAXPROCS(0), OneProcess: true,
		}
	}
	return ranks
}

// pages returns n zeros that begin at a page. Those of a large piece take no
// memory until they are touched.
func pages(n int) []byte {
	const page = 4096
	p := make([]byte, n+page)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(p))) % page)
	return p[skip : skip+n : skip+n]
}

// Mesh is one rank of a mesh in memory. It implements transport.Mesh.
type Mesh struct {
	rank    int
	windows *transport.SharedMemory
	ranks   []*Mesh
	from    []*transport.Inbox // by sender

	down atomic.Pointer[error] // why this rank stopped, set once

	sent, received, messages atomic.Int64
}

// Rank is this rank's number.
func (m *Mesh) Rank() int { return m.rank }

// Size is the number of ranks.
func (m *Mesh) Size() int { return len(m.ranks) }

// SharedMemory returns the memory of NewShared, else nil. See transport.SharedMemoryProvider.
func (m *Mesh) SharedMemory() *transport.SharedMemory { return m.windows }

// Send copies p into the receive posted for it, or into a buffer kept for one.
// See transport.Mesh.
func (m *Mesh) Send(to int, tag transport.Tag, p []byte, timeout time.Duration) error {
	if err := m.send(to, tag, p, timeout); err != nil {
		return &transport.Error{Op: "send", Rank: m.rank, Peer: to, Tag: tag, Err: err}
	}
	m.sent.Add(int64(len(p)))
	m.messages.Add(1)
	return nil
}

func (m *Mesh) send(to int, tag transport.Tag, p []byte, timeout time.Duration) error {
	if err := transport.CheckPeer(m, to); err != nil {
		return err
	}
	if down := m.down.Load(); down != nil {
		return *down
	}
	peer := m.ranks[to]
	in := peer.from[m.rank]
	a, err := in.Begin(tag, len(p), max(0, timeout))
	if err != nil {
		return m.sendFault(peer, err)
	}
	copy(a.Bytes(), p)
	// Counted before it can be seen, so that a receiver that has the message
	// also finds it in its counters.
	peer.received.Add(int64(len(p)))
	in.End(a, nil)
	return nil
}

// sendFault returns what the sender sees when the receiver's inbox failed.
func (m *Mesh) sendFault(peer *Mesh, err error) error {
	if down := m.down.Load(); down != nil {
		return *down
	}
	if down := peer.down.Load(); down != nil && *down == transport.ErrClosed {
		return transport.ErrGoodbye
	}
	if lost := m.from[peer.rank].Err(); lost != nil {
		return lost
	}
	if remote := (*transport.AbortError)(nil); errors.Is(err, transport.ErrAborted) && !errors.As(err, &remote) {
		return transport.NewAbortError(peer.rank, err)
	}
	return err
}

// Post asks for a message. See transport.Mesh.
func (m *Mesh) Post(r *transport.Recv, from int, tag transport.Tag, dst []byte) {
	if err := transport.CheckPeer(m, from); err != nil {
		transport.PostFault(r, &transport.Error{Op: "receive", Rank: m.rank, Peer: from, Tag: tag, Err: err})
		return
	}
	m.from[from].Post(r, tag, dst)
}

// Fault returns why nothing more will come from a peer. See transport.Mesh.
func (m *Mesh) Fault(peer int) error {
	if down := m.down.Load(); down != nil {
		return *down
	}
	if err := transport.CheckPeer(m, peer); err != nil {
		return err
	}
	return m.from[peer].Err()
}

// Traffic returns the counters; there are no headers, so wire bytes are payload.
func (m *Mesh) Traffic() transport.Traffic {
	sent, received := m.sent.Load(), m.received.Load()
	return transport.Traffic{
		PayloadSent: sent, PayloadReceived: received,
		WireSent: sent, WireReceived: received,
		MessagesSent: m.messages.Load(),
	}
}

// Abort fails this rank's operations with cause and those of its peers with a
// *transport.AbortError.
func (m *Mesh) Abort(cause error) {
	m.stop(transport.Aborted(cause), func(peer *Mesh) {
		remote := transport.NewAbortError(m.rank, cause)
		peer.stop(remote, nil)
	})
}

// Close leaves the mesh: what peers have been sent they can still receive,
// everything else from this rank fails with transport.ErrGoodbye.
func (m *Mesh) Close() error {
	m.stop(transport.ErrClosed, func(peer *Mesh) {
		peer.from[m.rank].Break(transport.ErrGoodbye)
	})
	return nil
}

// stop fails all of this rank's operations with err and then tells each peer.
// Only the first call has an effect.
func (m *Mesh) stop(err error, tell func(peer *Mesh)) {
	if !m.down.CompareAndSwap(nil, &err) {
		return
	}
	for _, in := range m.from {
		in.Shut(err)
	}
	for _, peer := range m.ranks {
		if tell != nil && peer != m {
			tell(peer)
		}
	}
}

// Cut breaks the link to a peer in both directions, as if each had lost the
// other. It is there for fault injection.
func (m *Mesh) Cut(peer int) {
	if transport.CheckPeer(m, peer) != nil {
		return
	}
	other := m.ranks[peer]
	m.from[peer].Break(transport.Lost(peer))
	other.from[m.rank].Break(transport.Lost(m.rank))
}
