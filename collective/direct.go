package collective

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/waiting"
	"github.com/ringo-ml/ringo/transport"
)

// Direct algorithms: ranks of one host load and store each other's memory
// (transport.Windows). Nothing is sent; what orders the accesses are counters
// in shared memory, each raised by one rank and waited for by the others.
//
// Every operation begins by arriving: each rank says in a cache line of its own
// what it does and where its operand lies, and waits for all others' lines. An
// operand that lies in a rank's arena is read and written there by all; any
// other is copied through staging buffers in Windows.Control. All ranks know
// after the arrival which of the two it is.
//
// Control, of which transport gives ControlBytes for each rank of the windows,
// the ranks' pieces one after the other:
//
//	rank 0                                 rank 1
//	┌─────────┬─────────┬───┬─────────┐    ┌──
//	│ group 0 │ group 1 │ … │ group 7 │    │ …
//	└─────────┴─────────┴───┴─────────┘    └──
//	┌────────────────────────┬───────────┬───────────┬───┬──────────────┐
//	│ flags: slot 0, slot 1… │ staging 0 │ staging 1 │ … │ direct_pair.go │   a group's
//	└────────────────────────┴───────────┴───────────┴───┴──────────────┘
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

const (
	// shareGroups is how many groups over a mesh have room in Control: those with
	// the IDs below it.
	shareGroups = 8
	// shareBytes is a group's part of a rank's piece of Control, stagedBytes what
	// collective operations have of it.
	shareBytes  = transport.ControlBytes / shareGroups
	stagedBytes = shareBytes - pairFlagBytes - pairCellBytes
	// lines of a slot.
	lineArrived, lineSteps, slotLines = 0, 1, 2

	pageBytes  = 4096
	cacheLine  = waiting.FlagBytes
	inlineSize = waiting.InlineBytes
)

// share is the part of a group that shares memory with this rank.
type share struct {
	windows *transport.Windows
	ranks   []int // of the group, ascending; everything below counts places in it
	seats   []int // the place of each rank of the group; -1: it shares no memory
	me      int
	arenas  [][]byte
	slots   int // a power of two
	flags   []*waiting.Flag
	staging [][]byte // by slot and place
	pairs   []pair   // by place; nil: there is no room
	waiter  waiting.Waiter
	spins   int    // before anything is noted of a wait
	next    uint64 // number of the next operation; Group.mu is held
	left    bool   // the windows are no longer held; likewise
	quick   *Work  // the one that needs no other goroutine
}

// newShare returns the share of a group, nil if it has none: the mesh has no
// windows or is closed, the group's ID is beyond those that have room, or no other
// rank of the group is in them. Counters never go back: an ID serves one group.
func newShare(g *Group) (*share, error) {
	windows := transport.WindowsOf(g.mesh)
	if windows == nil || g.cfg.ID >= shareGroups {
		return nil, nil
	}
	s := &share{windows: windows, slots: 1 << bits.Len(uint(2*g.cfg.InFlight-1))}
	var places []int
	for r, meshRank := range g.ranks {
		s.seats = append(s.seats, -1)
		if place := slices.Index(windows.Ranks, meshRank); place >= 0 {
			s.seats[r] = len(s.ranks)
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
	s.lay(places, g.cfg.ID)
	if len(s.staging[0]) < 4*cacheLine*len(s.ranks) {
		return nil, nil // not a line for each rank
	}
	if s.flag(0, s.me, lineArrived).Load() != 0 {
		return nil, fmt.Errorf("id %d was that of another group over this mesh: give each a new one", g.cfg.ID)
	}
	s.waiter = waiting.New(waiting.Config{Ranks: len(s.ranks), Cores: windows.Cores, OneProcess: windows.OneProcess})
	s.spins = directSpins
	if windows.Cores > 0 && len(s.ranks) > windows.Cores {
		s.spins = crowdedSpins
	}
	s.quick = &Work{g: g, group: g.cfg.ID}
	windows.Hold()
	return s, nil
}

// leave lets the windows go, once.
func (s *share) leave() {
	if s != nil && !s.left {
		s.left = true
		s.windows.Drop()
	}
}

// lay finds the flags and staging buffers in Control.
func (s *share) lay(places []int, id uint32) {
	header := (s.slots*slotLines*cacheLine + pageBytes - 1) &^ (pageBytes - 1)
	room := (stagedBytes - header) / s.slots &^ (pageBytes - 1)
	for slot := range s.slots {
		for _, place := range places {
			base := place*transport.ControlBytes + int(id)*shareBytes
			for line := range slotLines {
				s.flags = append(s.flags, waiting.FlagAt(s.windows.Control, base+(slot*slotLines+line)*cacheLine))
			}
			s.staging = append(s.staging, s.windows.Control[base+header+slot*room:][:room:room])
		}
	}
	s.layPairs(func(i int) int { return places[i]*transport.ControlBytes + int(id)*shareBytes + stagedBytes })
}

// whole reports whether the share is all of the group.
func (s *share) whole(size int) bool { return s != nil && len(s.ranks) == size }

// flag returns a line of a place in the slot of operation n.
func (s *share) flag(n uint64, place, line int) *waiting.Flag {
	slot := int(n) & (s.slots - 1)
	return s.flags[(slot*len(s.ranks)+place)*slotLines+line]
}

// stage returns a place's staging buffer in the slot of operation n.
func (s *share) stage(n uint64, place int) []byte {
	return s.staging[int(n)&(s.slots-1)*len(s.ranks)+place]
}

// turn is how often the slot of operation n has been used, with it.
func (s *share) turn(n uint64) uint64 { return n/uint64(s.slots) + 1 }

// The counter of an arrival is the turn of the slot in the high bits and in the
// low ones a summary of the signature: all of it when the operand is in the
// line, so that ranks that agree know it from the counter alone, else a hash.
const (
	summaryBits = 30
	summaryMask = 1<<summaryBits - 1
	summaryAll  = 1 << (summaryBits - 1)
)

// summary says all when the operand is in the line. See the fields of signature.
func (s signature) summary(inline bool) uint64 {
	if inline {
		return summaryAll | uint64(s&0xfff) | uint64(s>>16&0x3ff)<<12 | uint64(s>>26&0x3f)<<22
	}
	return uint64(s) * 0x9e3779b97f4a7c15 >> (64 - summaryBits + 1)
}

// signatureOf is the signature that a summary holds all of.
func signatureOf(summary uint64) signature {
	return signature(summary&0xfff) | signature(byDirect)<<12 | signature(summary>>12&0x3ff)<<16 | signature(summary>>22&0x3f)<<26
}

const nowhere = ^uint64(0)

// place returns where in this rank's arena p lies, or nowhere.
func (w *Work) place(p []byte) uint64 {
	if len(p) == 0 {
		return 0
	}
	if off, ok := w.g.share.windows.Offset(p); ok {
		return uint64(off)
	}
	return nowhere
}

// inline reports whether operands of so many bytes, the same on every rank, go in
// the lines of the arrival. Their length must fit the summary.
func (w *Work) inline(size int) bool { return size <= inlineSize && w.shared() < 64 }

// arriveInline says what this rank does in operation w, puts its operand beside
// it and waits until all others have done so.
func (w *Work) arriveInline(operand []byte) error {
	s := w.g.share
	f := s.flag(w.number, s.me, lineArrived)
	if len(operand) == 4 {
		*(*uint32)(unsafe.Pointer(&f.Inline)) = *(*uint32)(unsafe.Pointer(unsafe.SliceData(operand)))
	} else {
		copy(f.Inline[:], operand)
	}
	turn := s.turn(w.number) << summaryBits
	mine := turn | w.sig.summary(true)
	f.Raise(mine)
	for i := range s.ranks {
		if i == s.me {
			continue
		}
		f := s.flag(w.number, i, lineArrived)
		if f.Load() < turn {
			if err := w.await(f, turn, i); err != nil {
				return err
			}
		}
		if f.Load() != mine {
			return w.differs(f, i)
		}
	}
	return nil
}

// arrive says what this rank does in operation w and where in its arena its
// operand lies, or nowhere, and waits until all others have done so. What they
// then read of this rank they may read until this slot's next operation.
func (w *Work) arrive(place uint64, most int) error {
	s := w.g.share
	f := s.flag(w.number, s.me, lineArrived)
	mine := arrival{w.sig, place, uint64(most)}
	*arrivalOf(f) = mine
	turn := s.turn(w.number) << summaryBits
	f.Raise(turn | w.sig.summary(false))
	w.shows = append(w.shows[:0], make([]show, len(s.ranks))...)
	w.shows[s.me] = mine.show()
	for i := range s.ranks {
		if i == s.me {
			continue
		}
		f := s.flag(w.number, i, lineArrived)
		if f.Load() < turn {
			if err := w.await(f, turn, i); err != nil {
				return err
			}
		}
		if f.Load()&summaryAll != 0 || arrivalOf(f).sig != w.sig {
			return w.differs(f, i)
		}
		if err := w.look(i, *arrivalOf(f)); err != nil {
			return err
		}
	}
	return nil
}

// arrival is what is in the line when the operand is not.
type arrival struct {
	sig   signature
	place uint64 // where in the rank's arena the operand lies, or nowhere
	most  uint64 // the length of its largest part
}

func arrivalOf(f *waiting.Flag) *arrival { return (*arrival)(unsafe.Pointer(&f.Inline)) }

// differs is the error that another rank has arrived with another operation.
func (w *Work) differs(f *waiting.Flag, i int) error {
	var theirs signature
	if n := f.Load() & summaryMask; n&summaryAll != 0 {
		theirs = signatureOf(n)
	} else {
		theirs = arrivalOf(f).sig
	}
	return w.waitFault(i, &transport.MismatchError{Mine: uint64(w.sig), Theirs: uint64(theirs)})
}

// show is what a rank has arrived with. It is read once: what a peer writes there
// later has no effect.
type show struct {
	off    int // of its operand in its arena
	most   int // the length of its largest part
	placed bool
}

func (a arrival) show() show {
	return show{off: int(a.place), most: int(a.most), placed: a.place != nowhere}
}

// look keeps what rank i has arrived with, unless it points to where that rank has
// no memory, or is as long as no operand of this operation: a fault of its program,
// or of one that writes to memory that is not its own.
func (w *Work) look(i int, a arrival) error {
	s := w.g.share
	room := uint64(len(s.arenas[i]))
	if want, known := w.expects(i); known && a.most != uint64(want) || a.most > maxOperand {
		return w.waitFault(i, fmt.Errorf("%w: it shows parts of %d bytes, want %d", transport.ErrLength, a.most, want))
	}
	whole := a.most
	if w.parts() > 1 && w.kind != kindAllToAllV && w.how != byHierarchy { // takeAll looks at each part of the first
		whole *= uint64(w.parts())
	}
	if a.place != nowhere && (a.place > room || whole > room-a.place) {
		return w.outside(i, a.place, whole)
	}
	w.shows[i] = a.show()
	return nil
}

// maxOperand is beyond any operand, and far from an overflow.
const maxOperand = 1 << 50

// outside is the error that a rank's operand is not where its memory is.
func (w *Work) outside(i int, place, n uint64) error {
	return w.waitFault(i, fmt.Errorf("it shows %d bytes at %d of its arena of %d: its program or its memory is damaged", n, place, len(w.g.share.arenas[i])))
}

// expects returns the length of the largest part that rank i must show, unless it
// is known to that rank only. Within a host all show everything.
func (w *Work) expects(i int) (n int, known bool) {
	if w.how == byHierarchy {
		return len(w.x), true
	}
	switch w.kind {
	case kindAllGatherV, kindAllToAllV:
		return 0, false
	case kindAllGather, kindGather:
		return len(w.src), true
	case kindReduceScatter, kindAllToAll:
		return len(w.x) / w.g.size, true
	case kindBroadcast:
		if w.g.share.ranks[i] != w.root {
			return 0, true
		}
	case kindScatter:
		if w.g.share.ranks[i] != w.root {
			return 0, true
		}
		return len(w.dst), true
	}
	return len(w.x), true
}

// placeOf returns where a rank's operand begins in its arena; ok is false when
// it is not there. It has arrived.
func (w *Work) placeOf(i int) (off int, ok bool) { return w.shows[i].off, w.shows[i].placed }

// placed counts the ranks whose operands lie in their arenas.
func (w *Work) placed() int {
	n := 0
	for i := range w.g.share.ranks {
		if _, ok := w.placeOf(i); ok {
			n++
		}
	}
	return n
}

// step says that this rank has finished step n >= 1 of operation w and waits
// until all have.
func (w *Work) step(n int) error {
	s := w.g.share
	count := s.turn(w.number)<<countBits | uint64(n)
	s.flag(w.number, s.me, lineSteps).Raise(count)
	for i := range s.ranks {
		if i == s.me {
			continue
		}
		if f := s.flag(w.number, i, lineSteps); f.Load() < count {
			if err := w.await(f, count, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// countBits is what the number of a step takes in a counter.
const countBits = 30

// How often a counter is read before a wait is noted, for Waiting, and left to
// waiting.Waiter.
const (
	directSpins  = 500
	crowdedSpins = 10
)

// await waits until the counter of place i is at least n.
func (w *Work) await(f *waiting.Flag, n uint64, i int) error {
	s, g := w.g.share, w.g
	for range s.spins {
		if f.Load() >= n {
			return nil
		}
	}
	w.waitsFor(s.ranks[i])
	err := s.waiter.AtLeast(f, n, g.mesh, g.ranks[s.ranks[i]], g.cfg.Timeout)
	w.peer.Store(0)
	if err == waiting.ErrTimeout {
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
