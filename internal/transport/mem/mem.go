// Package mem is a mesh among goroutines of one process: a message is a copy into the receiver's
// slice. Use package mem in tests, and in programs that train on several goroutines.
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

// DefaultMaxUnexpectedBytes limits a rank's buffers per peer for receives not yet posted.
const DefaultMaxUnexpectedBytes = 256 << 20

// New returns the n ranks of a mesh, n >= 1. Separate goroutines use the ranks; close each rank.
func New(n int) []transport.Mesh { return NewLimited(n, DefaultMaxUnexpectedBytes) }

// NewLimited is New with another limit on buffers per peer; above, a sender waits.
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

// NewShared is New with shared memory: an arena of arenaBytes per rank, and control memory, as
// processes of one host have, for tests and for programs that reduce among goroutines.
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

// pages returns n zero bytes, page-aligned. Untouched pages of a large allocation use no memory.
func pages(n int) []byte {
	const page = 4096
	p := make([]byte, n+page)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(p))) % page)
	return p[skip : skip+n : skip+n]
}

// Mesh is a rank of an in-memory mesh. Mesh implements transport.Mesh.
type Mesh struct {
	rank    int
	windows *transport.SharedMemory
	ranks   []*Mesh
	from    []*transport.Inbox // inboxes by sender

	down atomic.Pointer[error] // reason for this rank's end, set once

	sent, received, messages atomic.Int64
}

// Rank returns this rank's number.
func (m *Mesh) Rank() int { return m.rank }

// Size returns the number of ranks.
func (m *Mesh) Size() int { return len(m.ranks) }

// SharedMemory returns the memory of NewShared, or nil. See transport.SharedMemoryProvider.
func (m *Mesh) SharedMemory() *transport.SharedMemory { return m.windows }

// Send copies p into the posted receive, or into a buffer. See transport.Mesh.
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
	// Counted before End, so that a receiver of the message also finds the message in the counters.
	peer.received.Add(int64(len(p)))
	in.End(a, nil)
	return nil
}

// sendFault returns the sender's error for a failed inbox of the receiver.
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

// Post posts a receive. See transport.Mesh.
func (m *Mesh) Post(r *transport.Recv, from int, tag transport.Tag, dst []byte) {
	if err := transport.CheckPeer(m, from); err != nil {
		transport.PostFault(r, &transport.Error{Op: "receive", Rank: m.rank, Peer: from, Tag: tag, Err: err})
		return
	}
	m.from[from].Post(r, tag, dst)
}

// Fault returns the reason why no more messages arrive from a peer. See transport.Mesh.
func (m *Mesh) Fault(peer int) error {
	if down := m.down.Load(); down != nil {
		return *down
	}
	if err := transport.CheckPeer(m, peer); err != nil {
		return err
	}
	return m.from[peer].Err()
}

// Traffic returns the counters. Without headers, wire bytes equal payload bytes.
func (m *Mesh) Traffic() transport.Traffic {
	sent, received := m.sent.Load(), m.received.Load()
	return transport.Traffic{
		PayloadSent: sent, PayloadReceived: received,
		WireSent: sent, WireReceived: received,
		MessagesSent: m.messages.Load(),
	}
}

// Abort fails this rank's operations with cause, and peers' with a *transport.AbortError.
func (m *Mesh) Abort(cause error) {
	m.stop(transport.Aborted(cause), func(peer *Mesh) {
		remote := transport.NewAbortError(m.rank, cause)
		peer.stop(remote, nil)
	})
}

// Close leaves the mesh: peers can still receive messages already sent, and other operations with
// this rank fail with transport.ErrGoodbye.
func (m *Mesh) Close() error {
	m.stop(transport.ErrClosed, func(peer *Mesh) {
		peer.from[m.rank].Break(transport.ErrGoodbye)
	})
	return nil
}

// stop fails this rank's operations with err and calls tell for each peer, unless already stopped.
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

// Cut breaks the link to a peer in both directions, as a loss would, for fault injection.
func (m *Mesh) Cut(peer int) {
	if transport.CheckPeer(m, peer) != nil {
		return
	}
	other := m.ranks[peer]
	m.from[peer].Break(transport.Lost(peer))
	other.from[m.rank].Break(transport.Lost(m.rank))
}
