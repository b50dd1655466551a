// Package shm adds memory shared by ranks of one host to a mesh; the mesh still sends all messages.
//
// The lowest rank of a host creates an anonymous memfd and sends its descriptor over a socket to
// peers with the job's ticket. When all ranks have mapped the memory, no descriptor and no socket
// remains open, so the memory disappears with the last process that maps it, even after a crash.
//
// All ranks agree on the outcome. If a rank of a host cannot share, the whole host continues
// without shared memory, and every rank gets the reason.
package shm

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// Config configures shared memory.
type Config struct {
	// Ticket is the job's secret, the same on all ranks.
	Ticket transport.Ticket
	// Version is the program's version: ranks with another version are refused.
	Version string
	// ArenaBytes is the length of each rank's arena; the lowest rank of a host decides. Untouched
	// pages use no memory. 0 means the size of the machine's memory, without an estimate.
	ArenaBytes int64
	// Off, if set, is the reason why no rank of this host shares memory. The rank still calls New.
	Off string
	// Threads is the number of computing threads, sent to all in Neighbour. 0 means no core needed.
	Threads int
	// Settle, if set, is called when this rank has the list of ranks on its machine, before memory
	// is created: Settle may bind this process, and returns the placement. here includes this rank,
	// in ascending order. An error ends New.
	Settle func(here []Neighbour) (Settled, error)
	// JoinTimeout limits New, in addition to the context. Required.
	JoinTimeout time.Duration
}

// Neighbour is a rank on this machine.
type Neighbour struct {
	Rank int
	// Near reports whether the rank is also on this rank's host: a machine may have several.
	Near bool
	// CPUs are the numbers of the processors available to the rank, ascending.
	CPUs []int
	// SameProcess reports whether the rank is in this process.
	SameProcess bool
	// Threads is the rank's Config.Threads.
	Threads int
}

// Settled is a rank's placement.
type Settled struct {
	// Cores is the number of processors for the host's ranks together; 0 means their union.
	Cores int
	// Node is the NUMA node for this rank's memory, if Homed.
	Node  int
	Homed bool
}

// Validate returns all errors of the configuration.
func (c Config) Validate() error {
	bad := faults.In("shm: ")
	bad.If(len(c.Ticket) == 0, "Ticket is missing")
	bad.If(c.Version == "" || len(c.Version) > wire.MaxVersion, "Version %q: 1 to %d bytes expected", c.Version, wire.MaxVersion)
	bad.If(c.ArenaBytes < 0 || c.ArenaBytes > maxArena, "ArenaBytes %d: 0 to %d expected", c.ArenaBytes, maxArena)
	bad.If(c.Threads < 0 || c.Threads > math.MaxUint16, "Threads %d: 0 to %d expected", c.Threads, math.MaxUint16)
	bad.If(c.JoinTimeout <= 0, "JoinTimeout %v: more than 0 expected", c.JoinTimeout)
	return bad.Err()
}

// Mesh is the inner mesh with this rank's shared memory. Mesh implements transport.Mesh,
// transport.SharedMemoryProvider and transport.Cutter.
type Mesh struct {
	transport.Mesh
	windows *transport.SharedMemory
	hosts   []int
	reason  string
	failed  bool

	arranging transport.Traffic // traffic of New itself
	closed    sync.Once
	err       error
}

// New sets up shared memory among the ranks of each host. All ranks of the inner mesh must call New
// at the same time. New uses the messages of group 0xffffffff. New takes ownership of inner, and
// closes inner on failure.
//
// Memory that cannot be shared is not an error: see Reason. A rank that dies or does not take part
// is an error with the rank's number.
func New(ctx context.Context, inner transport.Mesh, cfg Config) (*Mesh, error) {
	err := cfg.Validate()
	if err == nil {
		var m *Mesh
		if m, err = form(ctx, inner, cfg); err == nil {
			return m, nil
		}
		err = fmt.Errorf("rank %d: arranging shared memory: %w", inner.Rank(), err)
	}
	inner.Abort(err)
	_ = inner.Close() // err is more informative
	return nil, err
}

// SharedMemory returns this rank's shared memory, or nil. After Close only holders may use the
// memory. See transport.SharedMemoryProvider.
func (m *Mesh) SharedMemory() *transport.SharedMemory { return m.windows }

// Lender returns the inner mesh's ZeroCopySender. See transport.Wrapper.
func (m *Mesh) Lender() transport.ZeroCopySender { return transport.ZeroCopyOf(m.Mesh) }

// Hosts returns the host number of each rank, from 0, in the order of the hosts' lowest ranks.
// Ranks that cannot reach each other's sockets without a network, such as containers on a machine,
// count as separate hosts. The slice must not be changed.
func (m *Mesh) Hosts() []int { return m.hosts }

// Reason returns the ranks of one host that should share memory but do not, with the reason: "ranks
// 0 to 2 (rank 1: it was told to use tcp alone)", for each such host, equal on all ranks. failed
// reports whether such a host exists. If no host has two ranks, why is this reason and failed is
// false. why is empty if all hosts share as configured, including hosts with Config.Off on all
// ranks.
func (m *Mesh) Reason() (why string, failed bool) { return m.reason, m.failed }

// Traffic returns the inner mesh's counters, with New's messages in the wire bytes only.
func (m *Mesh) Traffic() transport.Traffic {
	t := m.Mesh.Traffic()
	t.PayloadSent -= m.arranging.PayloadSent
	t.PayloadReceived -= m.arranging.PayloadReceived
	t.MessagesSent -= m.arranging.MessagesSent
	return t
}

// Cut breaks the link to a peer, if the inner mesh has links.
func (m *Mesh) Cut(peer int) {
	if c, ok := m.Mesh.(transport.Cutter); ok {
		c.Cut(peer)
	}
}

// Close closes the inner mesh, and releases the memory after the last holder's Drop.
func (m *Mesh) Close() error {
	m.closed.Do(func() {
		m.err = m.Mesh.Close()
		if m.windows != nil {
			m.windows.Drop()
		}
	})
	return m.err
}
