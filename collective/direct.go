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

// Direct algorithms: ranks of one host load and store each other's memory
// (transport.SharedMemory). Nothing is sent; what orders the accesses are counters
// in shared memory, each raised by one rank and waited for by the others.
//
// Every operation begins by arriving: each rank says in a cache line of its own
// what it does and where its operand lies, and waits for all others' lines. An
// operand that lies in a rank's arena is read and written there by all; any
// other is copied through staging buffers in SharedMemory.Control. All ranks know
// after the arrival which of the two it is.
//
// Control, of which transport gives ControlBytes for each rank of the windows,
// the ranks' pieces one after the other:
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
// A rank writes to its own piece only. Operations take the slots in turn, twice
// as many as may be in flight, S. That is what lets slots be used again without
// another flag: a rank that begins operation q has ended q-S; so all have begun
// q-S, hence ended q-2S, which was the last one in q's slot.
//
// A room of Control serves one group after the other: a rank that closes one says so in the room's first line, with the group's number,
// and offers the room again (Group.ShmReleased) when all have.

const (
	// shareGroups is how many groups over a mesh have room in Control: those with
	// the IDs below it. From FirstSubgroup on they have less, and none for pairs of ranks.
	shareGroups = FirstSubgroup + shmSlots
	subBytes    = 512 << 10
	// shareBytes is a group's part of a rank's piece of Control, stagedBytes what
	// collective operations have of it.
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
	ranks        []int // of the group, ascending; everything below counts places in it
	shmRanks     []int // the place of each rank of the group; -1: it shares no memory
	me           int
	arenas       [][]byte
	slots        int             // a power of two
	closed       []*shmwait.Flag // by place: the number of the last group that the rank there has closed, plus one
	flags        []*shmwait.Flag
	staging      [][]byte // by slot and place
	pairs        []pair   // by place; nil: there is no room
	waiter       shmwait.Waiter
	workerWaiter shmwait.Waiter        // of operations that a worker carries out, while the rank computes
	order        atomic.Pointer[[]int] // the other places, as they are waited for
	next         uint64                // number of the next operation; Group.mu is held
	released     bool                  // the windows are no longer held; likewise
	quick        *Work                 // the one that needs no other goroutine
}

// newShare returns the share of a group, nil if it has none: the mesh has no
// windows or is closed, the group has no room in them, or no other rank of the group
// is in them. Counters never go back while a group has its room.
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
		return nil, nil // not a line for each rank
	}
	if s.flag(0, s.me, lineArrived).Load() != 0 {
		return nil, fmt.Errorf("id %d was that of another group over this mesh, or its room still is: give each a new one", g.cfg.ID)
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

// leave lets the windows go, once, and says that the group with this number needs its room no more.
func (s *shmGroup) leave(id uint32) {
	if s != nil && !s.released {
		s.released = true
		s.closed[s.me].Raise(uint64(id) + 1)
		s.windows.Drop()
	}
}

// ShmReleased tells whether all ranks that share memory have closed the group: another group may
// then have its room. The flags of this rank are cleared for that: every member of the next group
// asks this before any of them makes it. It is asked before the end of the mesh.
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

// lay finds the flags and staging buffers in Control.
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

// whole reports whether the share is all of the group.
func (s *shmGroup) whole(size int) bool { return s != nil && len(s.ranks) == size }

// flag returns a line of a place in the slot of operation n.
func (s *shmGroup) flag(n uint64, place, line int) *shmwait.Flag {
	slot := int(n) & (s.slots - 1)
	return s.flags[(slot*len(s.ranks)+place)*slotLines+line]
}

// stage returns a place's staging buffer in the slot of operation n.
func (s *shmGroup) stage(n uint64, place int) []byte {
	return s.staging[int(n)&(s.slots-1)*len(s.ranks)+place]
}

// sit notes now and then where this rank runs: one that never waits would not say it.
func (s *shmGroup) sit(number uint64) {
	if number%sitEvery == 0 {
		s.waiter.Sit()
		s.arrange()
	}
}

const sitEvery = 64

// arrange puts the places in the order in which they are waited for.
func (s *shmGroup) arrange() {
	var room [64]int
	order := s.waiter.Order(room[:0], len(s.ranks), s.me)
	if old := s.order.Load(); old == nil || !slices.Equal(*old, order) {
		kept := slices.Clone(order)
		s.order.Store(&kept)
	}
}

// turn is how often the slot of operation n has been used, with it.
func (s *shmGroup) turn(n uint64) uint64 { return n/uint64(s.slots) + 1 }

// step says that this rank has finished step n >= 1 of operation w and waits
// until all have.
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

// countBits is what the number of a step takes in a counter.
const countBits = 30

// How often a counter is read before a wait is noted, for Waiting, and left to
// shmwait.Waiter.
const (
	directSpins    = 500
	spinsInCompany = 10
)

// spinsApart is how often the counter of a rank of another core is looked at first, in company and in share.order: those of this core
// have come by then, so that to give way is two switches of threads for nothing. So many looks (Flag.Spin) take 4 to 13 us, about as
// long: more would keep the core from a neighbour that computes.
const spinsApart = 256

// awaitNext is await of the next place in share.order.
func (w *Work) awaitNext(f *shmwait.Flag, n uint64, i int) error {
	if waiter := &w.g.share.waiter; waiter.InCompany() && waiter.OtherCore(i) && f.Spin(n, spinsApart) {
		return nil
	}
	return w.await(f, n, i)
}

// await waits until the counter of place i is at least n.
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
