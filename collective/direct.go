package collective

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/shmwait"
	"github.com/ringo-ml/ringo/transport"
)

// Direct algorithms: ranks of one host load and store each other's memory (transport.SharedMemory).
// No message is sent. Counters in shared memory order the accesses: one rank raises a counter, the
// other ranks wait for it.
//
// Every operation begins with an arrival: each rank writes its operation and the offset of its
// operand to its own cache line, and waits for the other ranks' lines. An arena is a rank's part of
// shared memory for operands. All ranks read and write an operand in an arena in place; any other
// operand is copied through staging buffers in SharedMemory.Control. The offset in the arrival is
// special (nowhere) for an operand outside of an arena.
//
// Control has ControlBytes for each rank of the shared memory, in sequence:
//
//	rank 0                                 rank 1
//	┌─────────┬─────────┬───┬─────────┐    ┌──
//	│ group 0 │ group 1 │ … │ group 7 │    │ …
//	└─────────┴─────────┴───┴─────────┘    └──
//	┌─────────────────────────┬───────────┬───────────┬───┬────────────────┐
//	│ closed, slot 0, slot 1… │ staging 0 │ staging 1 │ … │ direct_pair.go │   a group's
//	└─────────────────────────┴───────────┴───────────┴───┴────────────────┘
//	┌─────────┬────────────────┐
//	│ arrived │ steps finished │                              a slot's flags, a line each
//	└─────────┴────────────────┘
//	┌───────────────┬──────────┬────────────────────────────┐
//	│ turn, summary │ sleepers │ 48 bytes of the operand, or │
//	│    8 bytes    │ 8 bytes  │ signature, place            │  the line of an arrival
//	└───────────────┴──────────┴────────────────────────────┘
//
// A rank writes to its own piece only. Operations use the slots round-robin. With at most S
// operations in flight there are 2S slots, so that no flag needs to release a slot: a rank that
// begins operation q has ended q-S; so all ranks have begun q-S, and have therefore ended q-2S, the
// last user of q's slot.
//
// Several groups use a slot of Control sequentially: a rank that closes a group writes the group's
// number to the slot's first line, and another group may use the slot when all ranks have closed
// the group (Group.ShmReleased).

const (
	// shareGroups is the number of groups over a mesh with a place in Control. From group
	// FirstSubgroup on the places are smaller, without space for messages between pairs of ranks.
	shareGroups = FirstSubgroup + shmSlots
	subBytes    = 512 << 10
	// shareBytes is the number of bytes of a group in a rank's piece of Control, and stagedBytes
	// the part of shareBytes for collective operations.
	shareBytes  = (transport.ControlBytes - (shareGroups-FirstSubgroup)*subBytes) / FirstSubgroup
	stagedBytes = shareBytes - pairFlagBytes - pairCellBytes
	// lines of a slot.
	lineArrived, lineSteps, slotLines = 0, 1, 2

	pageBytes  = 4096
	cacheLine  = shmwait.FlagBytes
	inlineSize = shmwait.InlineBytes
)

// shmGroup is the part of a group that shares memory with this rank.
type shmGroup struct {
	windows      *transport.SharedMemory
	ranks        []int // ranks of the group, ascending; the fields below are indexed by place in ranks
	shmRanks     []int // place of each rank of the group; -1: no shared memory
	me           int
	arenas       [][]byte
	slots        int             // a power of two
	closed       []*shmwait.Flag // number of the last group that the rank has closed, plus one, by place
	flags        []*shmwait.Flag
	staging      [][]byte // buffers by slot and place
	pairs        []pair   // pairs by place; nil: no space
	waiter       shmwait.Waiter
	workerWaiter shmwait.Waiter        // for operations that run on a worker while the rank computes
	order        atomic.Pointer[[]int] // other places, in the order of waits
	next         uint64                // number of the next operation; Group.mu is held
	released     bool                  // shared memory is released; Group.mu is held
	quick        *Work                 // reused by operations that need no other goroutine
}

// newShare returns the group's shared memory, or nil if the mesh has no shared memory or is closed,
// the group has no slot, or no other rank of the group shares memory with this rank. Counters in
// the slot never decrease while the group has the slot.
func newShare(g *Group) (*shmGroup, error) {
	windows := transport.SharedMemoryOf(g.mesh)
	if windows == nil || g.cfg.room() < 0 {
		return nil, nil
	}
	s := &shmGroup{windows: windows, slots: 1 << bits.Len(uint(2*g.cfg.InFlight-1))}
	var places []int
	for r, meshRank := range g.ranks {
		s.shmRanks = append(s.shmRanks, -1)
		if place := slices.Index(windows.Ranks, meshRank); place >= 0 {
			s.shmRanks[r] = len(s.ranks)
			if r == g.rank {
				s.me = len(s.ranks)
			}
			s.ranks, places = append(s.ranks, r), append(places, place)
			s.arenas = append(s.arenas, windows.Arenas[place])
		}
	}
	down := g.mesh.Fault(g.mesh.Rank()) // its memory may be gone
	if len(s.ranks) < 2 || errors.Is(down, transport.ErrClosed) || errors.Is(down, transport.ErrAborted) {
		return nil, nil
	}
	s.lay(places, g.cfg.room())
	if len(s.staging[0]) < 4*cacheLine*len(s.ranks) {
		return nil, nil // less than a line per rank
	}
	if s.flag(0, s.me, lineArrived).Load() != 0 {
		return nil, fmt.Errorf("id %d: another group over this mesh has used it, or its shared memory is still in use: choose a new id", g.cfg.ID)
	}
	seats := make([]*shmwait.Seat, len(s.ranks))
	for i := range seats {
		seats[i] = s.flag(0, i, lineSteps).Seat()
	}
	s.waiter = shmwait.New(shmwait.Config{
		Ranks: len(s.ranks), Cores: windows.Cores, OneProcess: windows.OneProcess, Seats: seats, Me: s.me,
	})
	s.workerWaiter = s.waiter.WhileComputing()
	s.arrange()
	s.quick = &Work{g: g, algorithmState: algorithmState{group: g.cfg.ID}}
	windows.Hold()
	return s, nil
}

// leave releases this rank's shared memory on its first call, and publishes that this rank has
// closed group id. After all ranks have done so, another group may use the slot: see ShmReleased.
func (s *shmGroup) leave(id uint32) {
	if s != nil && !s.released {
		s.released = true
		s.closed[s.me].Raise(uint64(id) + 1)
		s.windows.Drop()
	}
}

// ShmReleased reports whether all ranks that share memory have closed the group, so that another
// group may use its slot. If so, it clears this rank's flags in the slot. Every member of the next
// group must therefore call ShmReleased before any member makes that group, while the mesh is open.
func (g *Group) ShmReleased() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.share
	if s == nil {
		return g.closed
	}
	for _, closed := range s.closed {
		if closed.Load() <= uint64(g.cfg.ID) {
			return false
		}
	}
	for slot := range s.slots {
		for line := range slotLines {
			*s.flag(uint64(slot), s.me, line) = shmwait.Flag{}
		}
	}
	return true
}

// lay assigns the group's flags and staging buffers to their positions in Control. A rank's place
// is its index among the ranks that share memory.
func (s *shmGroup) lay(places []int, number int) {
	at, staged := number*shareBytes, stagedBytes
	if number >= FirstSubgroup {
		at, staged = FirstSubgroup*shareBytes+(number-FirstSubgroup)*subBytes, subBytes
	}
	header := ((1+s.slots*slotLines)*cacheLine + pageBytes - 1) &^ (pageBytes - 1)
	for _, place := range places {
		s.closed = append(s.closed, shmwait.FlagAt(s.windows.Control, place*transport.ControlBytes+at))
	}
	room := (staged - header) / s.slots &^ (pageBytes - 1)
	for slot := range s.slots {
		for _, place := range places {
			base := place*transport.ControlBytes + at
			for line := range slotLines {
				s.flags = append(s.flags, shmwait.FlagAt(s.windows.Control, base+(1+slot*slotLines+line)*cacheLine))
			}
			s.staging = append(s.staging, s.windows.Control[base+header+slot*room:][:room:room])
		}
	}
	if number < FirstSubgroup {
		s.layPairs(func(i int) int { return places[i]*transport.ControlBytes + at + stagedBytes })
	}
}

// whole reports whether all ranks of the group share memory.
func (s *shmGroup) whole(size int) bool { return s != nil && len(s.ranks) == size }

// flag returns the flag of a place in one line of the slot of operation n.
func (s *shmGroup) flag(n uint64, place, line int) *shmwait.Flag {
	slot := int(n) & (s.slots - 1)
	return s.flags[(slot*len(s.ranks)+place)*slotLines+line]
}

// stage returns a place's staging buffer in the slot of operation n.
func (s *shmGroup) stage(n uint64, place int) []byte {
	return s.staging[int(n)&(s.slots-1)*len(s.ranks)+place]
}

// sit publishes, every sitEvery operations, the CPU that this rank runs on: other ranks decide from
// it whether to spin. A rank also publishes its CPU in waits, but may never wait.
func (s *shmGroup) sit(number uint64) {
	if number%sitEvery == 0 {
		s.waiter.Sit()
		s.arrange()
	}
}

const sitEvery = 64

// arrange sets the order in which this rank waits for the other places.
func (s *shmGroup) arrange() {
	var room [64]int
	order := s.waiter.Order(room[:0], len(s.ranks), s.me)
	if old := s.order.Load(); old == nil || !slices.Equal(*old, order) {
		kept := slices.Clone(order)
		s.order.Store(&kept)
	}
}

// turn returns the number of operations up to and including n that use the slot of n.
func (s *shmGroup) turn(n uint64) uint64 { return n/uint64(s.slots) + 1 }

// step publishes that this rank has finished step n >= 1 of operation w, and waits until all other
// ranks have finished it.
func (w *Work) step(n int) error {
	s := w.g.share
	count := s.turn(w.number)<<countBits | uint64(n)
	s.flag(w.number, s.me, lineSteps).Raise(count)
	for _, i := range *s.order.Load() {
		if f := s.flag(w.number, i, lineSteps); f.Load() < count {
			if err := w.awaitNext(f, count, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// countBits is the number of bits of a step number in a counter.
const countBits = 30

// Numbers of reads of a counter, first before a wait is recorded (Group.Waiting), then before
// shmwait.Waiter continues the wait.
const (
	directSpins    = 500
	spinsInCompany = 10
)

// spinsApart is the number of reads of a counter before this rank yields its core, if ranks share
// cores and the awaited rank is on another core. Ranks on this rank's core come first in
// share.order and have already arrived, so yielding would cost two thread switches without a gain.
// 256 reads (Flag.Spin) take 4 to 13 us, about as long as the switches; more reads would delay a
// rank that computes on this core.
const spinsApart = 256

// awaitNext is await for the next place i of share.order, after up to spinsApart reads.
func (w *Work) awaitNext(f *shmwait.Flag, n uint64, i int) error {
	if waiter := &w.g.share.waiter; waiter.InCompany() && waiter.OtherCore(i) && f.Spin(n, spinsApart) {
		return nil
	}
	return w.await(f, n, i)
}

// await waits until the counter f of the rank at place i is at least n.
func (w *Work) await(f *shmwait.Flag, n uint64, i int) error {
	s, g := w.g.share, w.g
	spins := directSpins
	if s.waiter.InCompany() {
		spins = spinsInCompany
	}
	for range spins {
		if f.Load() >= n {
			return nil
		}
	}
	w.waitsFor(s.ranks[i])
	waiter := &s.waiter
	if w.onWorker {
		waiter = &s.workerWaiter
	}
	err := waiter.AtLeast(f, n, g.mesh, g.ranks[s.ranks[i]], w.timeout())
	w.waited(err)
	if err == shmwait.ErrTimeout {
		err = fmt.Errorf("%w after %v", transport.ErrTimeout, g.cfg.Timeout)
	}
	if err != nil {
		return w.waitFault(i, err)
	}
	return nil
}

func (w *Work) waitFault(i int, err error) error {
	g, op := w.g, "receive"
	if w.kind == kindSend {
		op = "send"
	}
	return &transport.Error{Op: op, Rank: g.mesh.Rank(), Peer: g.ranks[g.share.ranks[i]], Tag: w.tag(0), Err: err}
}
