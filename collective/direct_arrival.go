package collective

import (
	"fmt"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/shmwait"
	"github.com/ringo-ml/ringo/transport"
)

// Arrival is the first step of a direct operation: a rank writes its operation to its own cache
// line, and checks the lines of the other ranks. Their memory is untrusted: each line is read once
// and validated before use.

// The counter of an arrival has the number of uses of the slot in the high bits and a summary of
// the signature (the description of the operation) in the low bits. If the operand is in the line,
// the summary is the whole signature, so that ranks compare counters alone; otherwise it is a hash.
const (
	summaryBits = 30
	summaryMask = 1<<summaryBits - 1
	summaryAll  = 1 << (summaryBits - 1)
)

// summary returns the signature in the bits that a counter has for it: whole if inline, else a
// hash. See the fields of signature.
func (s signature) summary(inline bool) uint64 {
	if inline {
		return summaryAll | uint64(s&0xfff) | uint64(s>>16&0x3ff)<<12 | uint64(s>>26&0x3f)<<22
	}
	return uint64(s) * 0x9e3779b97f4a7c15 >> (64 - summaryBits + 1)
}

// signatureOf returns the signature whose summary, with inline, is summary.
func signatureOf(summary uint64) signature {
	return signature(summary&0xfff) | signature(byDirect)<<12 | signature(summary>>12&0x3ff)<<16 | signature(summary>>22&0x3f)<<26
}

const nowhere = ^uint64(0)

// place returns the offset of p in this rank's arena, or nowhere if p is outside of the arena.
func (w *Work) place(p []byte) uint64 {
	if len(p) == 0 {
		return 0
	}
	if off, ok := w.g.share.windows.Offset(p); ok {
		return uint64(off)
	}
	return nowhere
}

// inline reports whether operands of size bytes, equal on all ranks, are written to the cache lines
// of the arrival. The length, in values, must also fit the summary in the counter.
func (w *Work) inline(size int) bool { return size <= inlineSize && w.shared() < 64 }

// arriveInline publishes this rank's operation w with its operand, and waits for all other ranks.
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
	s.sit(w.number)
	f.Raise(mine)
	for _, i := range *s.order.Load() {
		f := s.flag(w.number, i, lineArrived)
		if f.Load() < turn {
			if err := w.awaitNext(f, turn, i); err != nil {
				return err
			}
		}
		if f.Load() != mine {
			return w.differs(f, i)
		}
	}
	return nil
}

// arrive publishes operation w, with the offset of this rank's operand (or nowhere) and the length
// of its largest part, and waits for all other ranks. The other ranks may read this rank's memory
// until this slot's next operation.
func (w *Work) arrive(place uint64, most int) error {
	s := w.g.share
	f := s.flag(w.number, s.me, lineArrived)
	mine := arrival{w.sig, place, uint64(most), w.second}
	*arrivalOf(f) = mine
	turn := s.turn(w.number) << summaryBits
	s.sit(w.number)
	f.Raise(turn | w.sig.summary(false))
	w.arrivals = append(w.arrivals[:0], make([]peerOperand, len(s.ranks))...)
	w.arrivals[s.me] = mine.show()
	for _, i := range *s.order.Load() {
		f := s.flag(w.number, i, lineArrived)
		if f.Load() < turn {
			if err := w.awaitNext(f, turn, i); err != nil {
				return err
			}
		}
		if f.Load()&summaryAll != 0 || arrivalOf(f).sig != w.sig {
			return w.differs(f, i)
		}
		if err := w.readPeer(i, *arrivalOf(f)); err != nil {
			return err
		}
	}
	return nil
}

// arrival is what a rank writes to its line if the operand is not in the line.
type arrival struct {
	sig         signature
	arenaOffset uint64 // operand's offset in the rank's arena, or nowhere
	most        uint64 // length of the largest part
	second      uint64 // offset of the parameters of a sharded update
}

func arrivalOf(f *shmwait.Flag) *arrival { return (*arrival)(unsafe.Pointer(&f.Inline)) }

// differs returns an error if the rank at place i has arrived with another operation.
func (w *Work) differs(f *shmwait.Flag, i int) error {
	var theirs signature
	if n := f.Load() & summaryMask; n&summaryAll != 0 {
		theirs = signatureOf(n)
	} else {
		theirs = arrivalOf(f).sig
	}
	return w.waitFault(i, &transport.MismatchError{Mine: uint64(w.sig), Theirs: uint64(theirs)})
}

// peerOperand is a copy of a rank's arrival, read once: later writes of that rank have no effect.
type peerOperand struct {
	off    int // offset of the operand in the arena
	most   int // length of the largest part
	placed bool
	second int // offset of the parameters of a sharded update; -1: outside of the arena
}

func (a arrival) show() peerOperand {
	return peerOperand{off: int(a.arenaOffset), most: int(a.most), placed: a.arenaOffset != nowhere, second: int(a.second)}
}

// readPeer checks and stores the arrival of the rank at place i. Errors: an offset outside of that
// rank's memory, or a length that no operand of this operation has. Causes are an error in that
// rank's program, or another program that overwrites its memory.
func (w *Work) readPeer(i int, a arrival) error {
	s := w.g.share
	room := uint64(len(s.arenas[i]))
	if want, known := w.expects(i); known && a.most != uint64(want) || a.most > maxOperand {
		return w.waitFault(i, fmt.Errorf("%w: its parts have %d bytes, this rank's %d", transport.ErrLength, a.most, want))
	}
	whole := a.most
	if w.parts() > 1 && w.kind != kindAllToAllV && w.algorithm != byHierarchy { // takeAll checks each part of an AllToAllV
		whole *= uint64(w.parts())
	}
	if a.arenaOffset != nowhere && (a.arenaOffset > room || whole > room-a.arenaOffset) {
		return w.outside(i, a.arenaOffset, whole)
	}
	if w.kind == kindSharded && a.second != nowhere && (a.second > room || whole > room-a.second) {
		return w.outside(i, a.second, whole)
	}
	w.arrivals[i] = a.show()
	return nil
}

// maxOperand is larger than any operand, and far from an overflow.
const maxOperand = 1 << 50

// outside returns the error of an operand outside of a rank's memory.
func (w *Work) outside(i int, place, n uint64) error {
	return w.waitFault(i, fmt.Errorf("its operand of %d bytes at offset %d exceeds its arena of %d bytes: its program or its memory is damaged", n, place, len(w.g.share.arenas[i])))
}

// expects returns the length, in bytes, of the largest part that the rank at place i must publish;
// known is false if this rank cannot compute it.
func (w *Work) expects(i int) (n int, known bool) {
	if w.algorithm == byHierarchy {
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

// placeOf returns the offset of an arrived rank's operand in its arena; ok is false outside of it.
func (w *Work) placeOf(i int) (off int, ok bool) { return w.arrivals[i].off, w.arrivals[i].placed }

// placed returns the number of ranks with operands in their arenas.
func (w *Work) placed() int {
	n := 0
	for i := range w.g.share.ranks {
		if _, ok := w.placeOf(i); ok {
			n++
		}
	}
	return n
}
