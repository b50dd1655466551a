package collective

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/shmwait"
	"github.com/ringo-ml/ringo/transport"
)

// Send and Receive between ranks that share memory. For each direction of each pair
// there are pairSlots slots, which the messages take in turn, and a counter of the
// messages that the sender has announced, in their order. A slot has a notice, which
// says what the message is, and a cell for its bytes:
//
//   - up to 32 bytes travel in the notice,
//   - up to `eager` bytes in the cell: the sender copies them and is done.
//   - A longer message that lies in the sender's arena is copied from there, once;
//     the sender waits until it was.
//   - Any other goes through the cell in four pieces by turns, so that one rank
//     copies in while the other copies out.
//
// A message whose slot is still taken, or whose cell is too small, is announced all
// the same and goes over the mesh: a sender that is far ahead of the receiver waits
// no earlier than it would there. The receiver finds another message's number in the
// slot, or none, and posts a receive.
//
// The sender's counters, notices and cells are in its piece of Control, those that
// say what was received in the receiver's. Cost of a short message: its bytes written
// and read once, and a cache line each way.

const (
	pairSlots  = 8
	pairPieces = 4 // of a cell
	// pairPatience is how long a sender waits for a slot: what the way over the mesh
	// costs, so that it loses no more than that. Then it does not until one was free.
	pairPatience = 20 * time.Microsecond
	// lines of a pair in one rank's piece of Control: as the sender its counter of
	// announcements, the notices and how much is in the cells; as the receiver how
	// much was taken from them.
	linePairNotice, linePairFilled, linePairTaken, pairLines = 1, 1 + pairSlots, 1 + 2*pairSlots, 1 + 3*pairSlots

	pairFlagBytes = 256 << 10
	pairCellBytes = 1 << 20 // of all cells of a rank
	leastCell     = 1 << 10
	leastStream   = 16 << 10 // cells below it are no faster than the mesh
)

// notice says what the message in a slot is.
type notice struct {
	number atomic.Uint64 // of the message, plus one
	sig    signature
	bytes  uint64
	place  uint64 // in the sender's arena, or nowhere
	inline [noticeInline]byte
}

const noticeInline = 32

// pipe is one direction between this rank and another.
type pipe struct {
	announced *shmwait.Flag            // how many messages
	notices   [pairSlots]*notice       //
	filled    [pairSlots]*shmwait.Flag // what was copied to the cell: progress
	taken     [pairSlots]*shmwait.Flag // and from it
	cells     [pairSlots][]byte

	mu   sync.Mutex
	turn sync.Cond         // of receives: heard has grown
	wait int               // how many wait for it
	done uint64            // of receives: how many have had their turn
	held [pairSlots]uint64 // of sends: the number of the message that a slot was last given to, plus one
	full bool              // of sends: no slot became free in time
}

// pair is both directions.
type pair struct{ out, in *pipe }

// layPairs finds the pipes in Control; there are none if they would be too small.
// base is where the piece of a place of the share begins, for the group.
func (s *shmGroup) layPairs(base func(place int) int) {
	n := len(s.ranks)
	room := pairCellBytes / (n - 1) / pairSlots &^ (cacheLine - 1)
	if room < leastCell || n*pairLines*cacheLine > pairFlagBytes {
		return
	}
	line := func(from, peer, number int) int { return base(from) + (peer*pairLines+number)*cacheLine }
	flag := func(from, peer, number int) *shmwait.Flag {
		return shmwait.FlagAt(s.windows.Control, line(from, peer, number))
	}
	lay := func(from, to int) *pipe {
		p := &pipe{announced: flag(from, to, 0)}
		p.turn.L = &p.mu
		number := to // among the peers
		if to > from {
			number--
		}
		for k := range pairSlots {
			p.notices[k] = (*notice)(unsafe.Pointer(flag(from, to, linePairNotice+k)))
			p.filled[k] = flag(from, to, linePairFilled+k)
			p.taken[k] = flag(to, from, linePairTaken+k)
			p.cells[k] = s.windows.Control[base(from)+pairFlagBytes+(number*pairSlots+k)*room:][:room:room]
		}
		return p
	}
	s.pairs = make([]pair, n)
	for i := range s.pairs {
		if i != s.me {
			s.pairs[i] = pair{out: lay(s.me, i), in: lay(i, s.me)}
		}
	}
}

// pairPlace is the place in the share of the other rank of w, which has pipes; -1 if
// it has none.
func (w *Work) pairPlace() int {
	if s := w.g.share; s != nil && s.pairs != nil {
		return s.shmRanks[w.root]
	}
	return -1
}

// progress is n pieces of message number; all of them are pieceAll.
func progress(number uint64, n uint32) uint64 {
	return (number/pairSlots+1)<<32 | uint64(n)
}

const pieceAll = 1<<32 - 1

// inCell reports whether a message of so many bytes travels in the notice or the cell.
func (p *pipe) inCell(n int) bool { return n <= min(eager, len(p.cells[0])) || n <= noticeInline }

// put announces the message of w to place i and, where it finds room, hands it over.
// done says that nothing is left to be done; otherwise w.how is byDirect where the
// rest goes through memory too. out.mu is held, from when w got its number.
func (w *Work) put(out *pipe) (done bool) {
	k, n := w.number%pairSlots, len(w.x)
	place := nowhere
	if n > eager {
		place = w.place(w.x)
	}
	fits := out.inCell(n) || n > eager && (place != nowhere || len(out.cells[k]) >= leastStream)
	if fits && !w.forceMesh && w.free(out, k) {
		out.held[k] = w.number + 1
		m := out.notices[k]
		m.sig, m.bytes, m.place = w.sig, uint64(n), place
		if n <= noticeInline {
			copy(m.inline[:], w.x)
		} else if out.inCell(n) {
			copy(out.cells[k], w.x)
		}
		m.number.Store(w.number + 1)
		w.algorithm, done = byDirect, out.inCell(n)
	}
	out.announced.Raise(w.number + 1)
	return done
}

// free reports whether a slot is free, or is soon.
func (w *Work) free(out *pipe, k uint64) bool {
	if out.held[k] == 0 {
		return true
	}
	g, all, patience := w.g, progress(out.held[k]-1, pieceAll), pairPatience
	if out.full {
		patience = 0
	}
	out.full = g.share.waiter.AtLeast(out.taken[k], all, g.mesh, g.ranks[w.root], patience) != nil
	return !out.full
}

// finishPut is the rest of a long message.
func (w *Work) finishPut(i int) error {
	out, k := w.g.share.pairs[i].out, w.number%pairSlots
	if out.notices[k].place == nowhere {
		piece := len(out.cells[k]) / pairPieces &^ (cacheLine - 1)
		for t, at := uint32(0), 0; at < len(w.x); t, at = t+1, at+piece {
			if t >= pairPieces {
				if err := w.await(out.taken[k], progress(w.number, t-pairPieces+1), i); err != nil {
					return err
				}
			}
			copy(out.cells[k][int(t%pairPieces)*piece:][:piece], w.x[at:])
			out.filled[k].Raise(progress(w.number, t+1))
		}
	}
	return w.await(out.taken[k], progress(w.number, pieceAll), i)
}

// awaitAnnouncement waits until the message of w was announced. Receives wait for that one after
// the other, as messages are announced, so that only the first of many takes a thread
// of its own when it sleeps.
func (w *Work) awaitAnnouncement(i int) error {
	in := w.g.share.pairs[i].in
	in.line(w.number)
	defer in.pass()
	if in.announced.Load() > w.number {
		return nil
	}
	return w.await(in.announced, w.number+1, i)
}

// skipTurn takes and passes the turn of a Receive that a fault keeps from beginning:
// those after it wait for no deadline but its.
func (w *Work) skipTurn() {
	if w.kind != kindReceive {
		return
	}
	if i := w.pairPlace(); i >= 0 {
		in := w.g.share.pairs[i].in
		in.line(w.number)
		in.pass()
	}
}

// line waits until all receives that were started before this one have had their turn.
func (p *pipe) line(number uint64) {
	p.mu.Lock()
	for p.done != number {
		p.wait++
		p.turn.Wait()
		p.wait--
	}
	p.mu.Unlock()
}

// pass ends the turn.
func (p *pipe) pass() {
	p.mu.Lock()
	p.done++
	if p.wait > 0 {
		p.turn.Broadcast()
	}
	p.mu.Unlock()
}

// take receives the message of w from place i, once it was announced. ok is false if
// it comes over the mesh.
func (w *Work) take(i int) (ok bool, err error) {
	in, k := w.g.share.pairs[i].in, w.number%pairSlots
	m := in.notices[k]
	if m.number.Load() != w.number+1 {
		return false, nil
	}
	sig, n, place := m.sig, m.bytes, m.place
	switch {
	case sig != w.sig:
		return true, w.waitFault(i, &transport.MismatchError{Mine: uint64(w.sig), Theirs: uint64(sig)})
	case n != uint64(len(w.x)):
		return true, w.waitFault(i, fmt.Errorf("%w: %d bytes there, %d here", transport.ErrLength, n, len(w.x)))
	case n <= noticeInline:
		copy(w.x, m.inline[:])
	case in.inCell(len(w.x)):
		copy(w.x, in.cells[k])
	case place != nowhere:
		arena := w.g.share.arenas[i]
		if place > uint64(len(arena)) || n > uint64(len(arena))-place {
			return true, w.outside(i, place, n)
		}
		copyCached(w.x, arena[place:place+n])
	default:
		err = w.takePieces(in, i)
	}
	if err == nil {
		in.taken[k].Raise(progress(w.number, pieceAll))
	}
	return true, err
}

// takePieces copies what finishPut passes through the cell.
func (w *Work) takePieces(in *pipe, i int) error {
	k := w.number % pairSlots
	piece := len(in.cells[k]) / pairPieces &^ (cacheLine - 1)
	for t, at := uint32(0), 0; at < len(w.x); t, at = t+1, at+piece {
		if err := w.await(in.filled[k], progress(w.number, t+1), i); err != nil {
			return err
		}
		copy(w.x[at:], in.cells[k][int(t%pairPieces)*piece:][:piece])
		in.taken[k].Raise(progress(w.number, t+1))
	}
	return nil
}
