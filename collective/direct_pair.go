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

// Send and Receive between ranks that share memory. Each direction of each pair has pairSlots
// slots, which messages use round-robin, and a counter of the announced messages, in order. A slot
// has a notice, which describes the message, and a cell for its bytes:
//
//   - Up to 32 bytes travel in the notice.
//   - Up to `eager` bytes travel in the cell: the sender copies them and returns.
//   - A longer message in the sender's arena is copied from there, once; the sender waits for the
//     copy.
//   - Any other message travels through the cell in pieces of a quarter, so that one rank copies in
//     while the other copies out.
//
// A message without a free slot, or with a cell that is too small, is announced too and travels
// over the mesh, so that a fast sender never waits longer than with the mesh alone. The receiver
// then finds another number in the slot and posts a receive.
//
// The sender's counters, notices and cells are in its piece of Control, the counters of received
// messages in the receiver's. Cost of a short message: its bytes written and read once, and a cache
// line each way.

const (
	pairSlots  = 8
	pairPieces = 4 // pieces of a cell
	// pairPatience is a sender's longest wait for a slot, about the duration of a message over the
	// mesh. After such a wait the sender does not wait again until a slot is free.
	pairPatience = 20 * time.Microsecond
	// lines of a pair in one rank's piece of Control: a sender has the counter of announcements,
	// the notices, and the counters of pieces written to cells; a receiver has the counters of
	// pieces read.
	linePairNotice, linePairFilled, linePairTaken, pairLines = 1, 1 + pairSlots, 1 + 2*pairSlots, 1 + 3*pairSlots

	pairFlagBytes = 256 << 10
	pairCellBytes = 1 << 20 // bytes of all cells of a rank
	leastCell     = 1 << 10
	leastStream   = 16 << 10 // smaller cells are no faster than the mesh
)

// notice describes the message in a slot.
type notice struct {
	number atomic.Uint64 // number of the message, plus one
	sig    signature
	bytes  uint64
	place  uint64 // offset in the sender's arena, or nowhere
	inline [noticeInline]byte
}

const noticeInline = 32

// pipe is the shared memory for messages of one direction between this rank and another rank.
type pipe struct {
	announced *shmwait.Flag // number of messages
	notices   [pairSlots]*notice
	filled    [pairSlots]*shmwait.Flag // copied to the cell: see progress
	taken     [pairSlots]*shmwait.Flag // copied from the cell
	cells     [pairSlots][]byte

	mu   sync.Mutex
	turn sync.Cond         // receives: done has grown
	wait int               // receives that wait for turn
	done uint64            // receives that have had their turn
	held [pairSlots]uint64 // sends: number of the last message of a slot, plus one
	full bool              // sends: no slot became free in time
}

// pair has the pipes of both directions between this rank and another.
type pair struct{ out, in *pipe }

// layPairs sets the pipes in Control, or none if they would be too small. base returns the offset
// of the group's bytes in the piece of the rank at a place.
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

// pairPlace returns the place, in shared memory, of the other rank of w; -1 without pipes.
func (w *Work) pairPlace() int {
	if s := w.g.share; s != nil && s.pairs != nil {
		return s.shmRanks[w.root]
	}
	return -1
}

// progress returns the counter value of n pieces of a message; pieceAll means all.
func progress(number uint64, n uint32) uint64 {
	return (number/pairSlots+1)<<32 | uint64(n)
}

const pieceAll = 1<<32 - 1

// inCell reports whether a message of n bytes travels in the notice or the cell.
func (p *pipe) inCell(n int) bool { return n <= min(eager, len(p.cells[0])) || n <= noticeInline }

// put announces the message of w and copies it to a free slot. done reports whether the message is
// complete; otherwise w.algorithm is byDirect if the rest travels through shared memory instead of
// the mesh. out.mu is held, so that announcements have the order of numbers.
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

// free reports whether a slot for message k is free, or becomes free within pairPatience.
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

// finishPut sends the rest of a message that is too long for put.
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

// awaitAnnouncement waits until the message of w is announced. Receives wait sequentially, in the
// order of messages, so that only the first of many occupies a thread while it sleeps.
func (w *Work) awaitAnnouncement(i int) error {
	in := w.g.share.pairs[i].in
	in.line(w.number)
	defer in.pass()
	if in.announced.Load() > w.number {
		return nil
	}
	return w.await(in.announced, w.number+1, i)
}

// skipTurn waits for the turn of a Receive that cannot begin because of an error, and ends the
// turn: later Receives wait for it without a timeout.
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

// line waits until all receives with lower numbers have ended their turn.
func (p *pipe) line(number uint64) {
	p.mu.Lock()
	for p.done != number {
		p.wait++
		p.turn.Wait()
		p.wait--
	}
	p.mu.Unlock()
}

// pass ends the turn of the current receive, so that the next can begin.
func (p *pipe) pass() {
	p.mu.Lock()
	p.done++
	if p.wait > 0 {
		p.turn.Broadcast()
	}
	p.mu.Unlock()
}

// take receives the announced message of w from place i. ok is false if the mesh has the message.
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

// takePieces copies the pieces that finishPut writes to the cell.
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
