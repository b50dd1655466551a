// Package shm adds memory that the ranks of one host share to a mesh of
// processes, which goes on carrying all messages.
//
// The lowest rank of a host makes one piece of memory without a name in any file
// system (a memfd) and hands its descriptor to the others over a socket, to whom
// holds the job's ticket. When all have mapped it no descriptor and no socket is
// left, and the memory goes with the last process that maps it, however that
// ends.
//
// All ranks agree on the outcome. Where one rank of a host cannot, its whole host
// goes on without, and everybody knows why.
package shm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// Config says how memory is shared.
type Config struct {
	// Ticket is the job's secret, the same on all ranks.
	Ticket transport.Ticket
	// Version is the program's: ranks of another one are refused.
	Version string
	// ArenaBytes is the length of each rank's arena; the lowest rank of a host
	// decides. Untouched pages take no memory. 0: as much as the machine has, so
	// that nobody needs to know in advance.
	ArenaBytes int64
	// Off, if set, is why this rank shares no memory: its host goes on without.
	// It still takes part in New, as every rank must.
	Off string
	// Threads is how many threads of this rank compute, told to all in their Neighbours; 0: it takes no core of its own.
	Threads int
	// Settle, if set, is called once this rank knows who else is on its machine, before memory is made: it may bind this
	// process, and says what came of it. here has this rank, too, by ascending rank. An error ends New.
	Settle func(here []Neighbour) (Settled, error)
	// JoinTimeout bounds New, besides its context. It must be given.
	JoinTimeout time.Duration
}

// Neighbour is a rank of this machine.
type Neighbour struct {
	Rank int
	// Near says that it is of this rank's host, too: see Mesh.Hosts.
	Near bool
	// CPUs are the numbers of the processors that it may run on, ascending.
	CPUs []int
	// SameProcess says that it is of this process.
	SameProcess bool
	// Threads is its Config.Threads.
	Threads int
}

// Settled is where a rank is to run.
type Settled struct {
	// Cores is how many processors the ranks of its host may use together; 0: all that one of them may run on.
	Cores int
	// Node is the NUMA node that the memory of this rank is to come from, where Homed.
	Node  int
	Homed bool
}

// Validate returns everything that is wrong with the configuration.
func (c Config) Validate() error {
	var faults []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf("shm: "+format, args...))
		}
	}
	fault(len(c.Ticket) == 0, "Ticket is missing")
	fault(c.Version == "" || len(c.Version) > wire.MaxVersion, "Version %q: 1 to %d bytes expected", c.Version, wire.MaxVersion)
	fault(c.ArenaBytes < 0 || c.ArenaBytes > maxArena, "ArenaBytes %d: 0 to %d expected", c.ArenaBytes, maxArena)
	fault(c.Threads < 0 || c.Threads > math.MaxUint16, "Threads %d: 0 to %d expected", c.Threads, math.MaxUint16)
	fault(c.JoinTimeout <= 0, "JoinTimeout %v: more than 0 expected", c.JoinTimeout)
	return errors.Join(faults...)
}

// Mesh is the inner mesh with what this rank shares. It implements
// transport.Mesh, transport.SharedMemoryProvider and transport.Cutter.
type Mesh struct {
	transport.Mesh
	windows *transport.SharedMemory
	hosts   []int
	reason  string
	failed  bool

	arranging transport.Traffic // what New itself has sent and received
	closed    sync.Once
	err       error
}

// New arranges shared memory among the ranks of each host. All ranks of the inner
// mesh call it at the same time; it uses the messages of group 0xffffffff. It
// owns inner from now on, and has closed it when it fails.
//
// That memory cannot be shared is no error: see Reason. A rank that dies or does
// not take part is one that names it.
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
	_ = inner.Close() // err says more
	return nil, err
}

// SharedMemory returns what this rank shares, nil where nothing is. After Close it is
// for those who hold it. See transport.SharedMemoryProvider.
func (m *Mesh) SharedMemory() *transport.SharedMemory { return m.windows }

// Lender returns the inner mesh's. See transport.Wrapper.
func (m *Mesh) Lender() transport.ZeroCopySender { return transport.ZeroCopyOf(m.Mesh) }

// Hosts returns the host of each rank: a number from 0 up, in the order of their
// lowest ranks. Ranks that cannot reach each other's sockets without a network,
// such as containers of one machine, count as of different hosts. It must not be
// changed.
func (m *Mesh) Hosts() []int { return m.hosts }

// Reason says which ranks of one host share no memory although they were to, and
// why: "ranks 0 to 2 (rank 1: it was told to use tcp alone)", for each such host,
// the same on every rank. failed is true where there are any. Where no host has two
// ranks it says so, which is no failure. It is empty when all is as it should be,
// also where all ranks of a host have Config.Off.
func (m *Mesh) Reason() (why string, failed bool) { return m.reason, m.failed }

// Traffic returns the counters of the inner mesh, whose payload is that of the
// callers: what New exchanged shows on the wire only. Loads and stores are not
// counted.
func (m *Mesh) Traffic() transport.Traffic {
	t := m.Mesh.Traffic()
	t.PayloadSent -= m.arranging.PayloadSent
	t.PayloadReceived -= m.arranging.PayloadReceived
	t.MessagesSent -= m.arranging.MessagesSent
	return t
}

// Cut breaks the link to a peer, where the inner mesh has links.
func (m *Mesh) Cut(peer int) {
	if c, ok := m.Mesh.(transport.Cutter); ok {
		c.Cut(peer)
	}
}

// Close closes the inner mesh and gives the memory back once nobody holds it.
func (m *Mesh) Close() error {
	m.closed.Do(func() {
		m.err = m.Mesh.Close()
		if m.windows != nil {
			m.windows.Drop()
		}
	})
	return m.err
}
