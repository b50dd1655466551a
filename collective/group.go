// Package collective exchanges numbers between the ranks of a mesh, in plain slices: allreduce,
// reduce-scatter, allgather, broadcast, reduce, gather, scatter, all-to-all, barrier, send and
// receive.
//
// Operations match by sequence number: every rank starts the same operations in the same order, and
// may wait for them in any order. invariant[sum-order]: the result has the same bits on every rank
// and in every run, because the order of additions is a function of rank, size and length alone.
//
// The first error breaks a group: peers receive the error, and every later operation fails
// immediately with the same cause. The operands of a failed operation are undefined, and a peer
// that has not noticed the error may still write to operands in shared memory: repeat the step with
// a new group over a new mesh.
//
//	g, err := collective.New(mesh, collective.Config{})
//	defer g.Close()
//	err = collective.AllReduce(g, grads, collective.Mean)
//
//	w := collective.StartAllReduce(g, grads, collective.Mean)
//	... // grads must not be touched
//	err = w.Wait()
package collective

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/transport"
)

// Group is one rank's view of ranks that carry out operations together. Several goroutines may
// start its operations if the order of the starts is equal on all ranks.
type Group struct {
	mesh       transport.Mesh
	lender     transport.ZeroCopySender // the mesh; nil if it copies
	rank, size int                      // rank and size in the group
	ranks      []int                    // mesh ranks, by rank in the group
	hosts      int                      // number of hosts
	hostOf     []int                    // host of each rank
	cfg        Config
	named      algorithm // cfg.Algorithm
	all        rankSet   // every rank, in order
	hosting    *hierarchy
	ring       rankSet // every rank, ranks of one host adjacent
	scribe     opRecorder
	kernels    *simd.Kernels
	rules      atomic.Pointer[ruleSet]
	tuned      atomic.Pointer[Rules] // nil: default rules
	share      *shmGroup             // nil: no memory shared with other ranks

	mu      sync.Mutex
	wake    sync.Cond      // signals that the queue's head may be admissible, or the group was closed
	workers sync.WaitGroup // goroutines that run queued operations
	running int            // workers
	idle    int            // workers that wait on wake
	closed  bool
	ended   bool                    // Close has returned, or is about to
	fault   atomic.Pointer[OpError] // first error; nil while the group works

	next       uint32 // sequence number of the next operation to start
	head, tail *Work  // started and not yet admitted, in order
	window     window
	free       *Work                // recycled
	spare      atomic.Pointer[Work] // last recycled one

	dups   []*Group // made by Dup
	dupped uint32   // number of all duplicates until now
	sent   atomic.Int64

	activeP2P []*Work  // Sends and Receives in flight
	sends     []uint64 // Sends started, by rank
	receives  []uint64 // Receives started, by rank
}

// New makes a group of cfg.Ranks, or of all ranks of mesh, without a message. The caller closes the
// mesh, after the group. Errors: an invalid configuration, or one that does not fit the mesh.
func New(mesh transport.Mesh, cfg Config) (*Group, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ranks, err := cfg.members(mesh)
	if err != nil {
		return nil, fmt.Errorf("collective: %w", err)
	}
	cfg = cfg.filled()
	rank, size := slices.Index(ranks, mesh.Rank()), len(ranks)
	named, _ := methodOf(cfg.Algorithm)
	if err := fits(named, size); err != nil {
		return nil, setting.Errorf(pathAlgorithm, "%w", err)
	}
	g := &Group{
		mesh: mesh, rank: rank, size: size, ranks: ranks, hosts: distinct(cfg.hostsAmong(ranks)), hostOf: cfg.hostsAmong(ranks), cfg: cfg, named: named,
		all: newScope(Ranks(size), rank), ring: newScope(byHost(cfg.hostsAmong(ranks)), rank),
		sends: make([]uint64, size), receives: make([]uint64, size),
		kernels: simd.Host(), lender: transport.ZeroCopyOf(mesh),
		window: newWindow(cfg.InFlight, cfg.InFlight*cfg.SegmentBytes),
	}
	g.wake.L = &g.mu
	g.hosting = newHierarchy(cfg.hostsAmong(ranks), rank)
	if g.hosting == nil && named == byHierarchy {
		return nil, setting.Errorf(pathAlgorithm, "%v: a host has more than %d ranks of the group, the maximum of this algorithm", named, maxLocal)
	}
	if g.share, err = newShare(g); err != nil {
		return nil, fmt.Errorf("collective: %w", err)
	}
	if named == byDirect && !g.share.whole(size) {
		g.share.leave(g.cfg.ID)
		return nil, setting.Errorf(pathAlgorithm, "%s: %s; use %s or another algorithm", Direct, g.whyNotShared(), Auto)
	}
	g.rules.Store(g.defaults())
	if err := g.configure(); err != nil {
		g.share.leave(g.cfg.ID)
		return nil, err
	}
	g.attend()
	return g, nil
}

// Dup makes another group of the same ranks, mesh and rules, as MPI_Comm_dup does: its operations
// are independent of the order of g's, for example for another goroutine. Its ID depends on g's ID
// and on the number of g's duplicates; every rank therefore makes the same duplicates in the same
// order. Dup sends no message. g.Waiting includes the waits of duplicates. The caller closes the
// duplicate before g.
func (g *Group) Dup() (*Group, error) {
	g.mu.Lock()
	g.dupped++
	cfg := g.cfg
	cfg.ID, cfg.ShmSlot = dupID(cfg.ID, g.dupped), 0
	g.mu.Unlock()
	cfg.Ranks, cfg.Profile, cfg.Rules = g.ranks, nil, nil
	b, err := New(g.mesh, cfg)
	if err != nil {
		return nil, err
	}
	if told := g.tuned.Load(); told != nil && g.share.whole(g.size) == b.share.whole(b.size) {
		b.rules.Store(g.rules.Load())
		b.tuned.Store(told)
	}
	g.mu.Lock()
	g.dups = append(slices.DeleteFunc(g.dups, (*Group).isClosed), b)
	g.mu.Unlock()
	return b, nil
}

func (g *Group) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// Sent returns the payload bytes that this rank has sent in finished operations of the group.
func (g *Group) Sent() int64 { return g.sent.Load() }

// Fail breaks the group on every rank: operations in flight and later ones fail with err, as this
// rank's error. A rank calls Fail if it has an error elsewhere and will therefore not start the
// operations that other ranks wait for. Fail returns the group's first error. With a nil err, Fail
// has no effect, and returns nil if the group works.
func (g *Group) Fail(err error) error {
	if fault := g.fault.Load(); err == nil && fault == nil {
		return nil
	} else if err == nil {
		return fault
	}
	rank := g.mesh.Rank()
	return g.fail(&OpError{Op: "fail", Rank: rank, Peer: culprit(err, rank), Err: err})
}

// whyNotShared returns the reason why the ranks of the group do not share memory.
func (g *Group) whyNotShared() string {
	if g.cfg.room() < 0 && transport.SharedMemoryOf(g.mesh) != nil {
		return fmt.Sprintf("group %d has no slot in shared memory: only groups with the IDs 0 to %d, or with a ShmSlot, have one", g.cfg.ID, shareGroups-1)
	}
	return fmt.Sprintf("the %d ranks of group %d do not share memory", g.size, g.cfg.ID)
}

// Rank returns this rank's number in the group, 0 <= Rank < Size.
func (g *Group) Rank() int { return g.rank }

// Size returns the number of ranks in the group.
func (g *Group) Size() int { return g.size }

// MeshRank returns the number in the mesh, as in errors, of a rank of the group.
func (g *Group) MeshRank(rank int) int { return g.ranks[rank] }

// Hosts returns the number of hosts of the ranks.
func (g *Group) Hosts() int { return g.hosts }

// Algorithm returns the algorithm of Config; empty means that rules choose.
func (g *Group) Algorithm() string { return g.cfg.Algorithm }

// Close ends the group and returns when its goroutines have ended. Operations in flight fail, here
// and on the other ranks of the group. The mesh stays open.
func (g *Group) Close() error {
	g.mu.Lock()
	busy := g.head != nil || g.window.busy() || len(g.activeP2P) > 0
	first := !g.closed
	g.closed = true
	g.mu.Unlock()
	if first && busy {
		g.fail(&OpError{Op: "close", Rank: g.mesh.Rank(), Peer: g.mesh.Rank(), Err: transport.ErrClosed})
	}
	g.mu.Lock()
	g.wake.Broadcast()
	g.mu.Unlock()
	g.workers.Wait()
	g.mu.Lock()
	g.leave()
	g.ended = true
	g.mu.Unlock()
	return nil
}

// Closed reports whether a Close has returned, or is about to return.
func (g *Group) Closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ended
}

// leave releases shared memory after the last operation of a closed group. g.mu is held.
func (g *Group) leave() {
	if g.closed && g.head == nil && !g.window.busy() && len(g.activeP2P) == 0 {
		g.share.leave(g.cfg.ID)
		g.scribe.leave()
	}
}

// fail breaks the group with cause unless it is broken, and returns the first cause, with which the
// operations in flight fail on this rank and its peers.
func (g *Group) fail(cause *OpError) *OpError {
	if g.fault.CompareAndSwap(nil, cause) {
		g.scribe.fault(cause)
		g.mesh.Abort(cause)
	}
	return g.fault.Load()
}

// broken returns the error of all later operations, or nil. g.mu is held.
func (g *Group) broken() error {
	if fault := g.fault.Load(); fault != nil {
		return fault
	}
	if g.closed {
		return transport.ErrClosed
	}
	return nil
}
