package collective

import "github.com/ringo-ml/ringo/transport"

// The messages of an operation: how they are named, sent, asked for and waited for, and
// where what is to be added arrives.

const (
	// posted is how many receives an operation posts ahead.
	posted = 4
	// slots is how many it posts of short messages to many ranks.
	slots = 32
)

// tag names message i of the operation between two ranks.
func (w *Work) tag(i int) transport.Tag {
	return transport.Tag{Group: w.group, Seq: w.seq, Part: w.base + uint32(i), Sig: uint64(w.sig)}
}

// number names a message by the step of the algorithm and the segment.
func number(step, segment int) int { return step<<numberBits | segment }

const (
	numberBits = 20 // of a message's number are its segment,
	stepBits   = 10 // its step,
	phaseBits  = 30 // and two its phase, see Work.base
)

// post asks for message i from a rank of the scope; the receive is number i modulo posted.
func (w *Work) post(i, from int, dst []byte) { w.postTo(i%posted, i, from, dst) }

// postTo is post with the number of the receive.
func (w *Work) postTo(slot, i, from int, dst []byte) {
	w.pending[slot] = true
	w.g.mesh.Post(&w.recvs[slot], w.meshRank(from), w.tag(i), dst)
}

// wait waits for message i, which was posted.
func (w *Work) wait(i, from int) error { return w.waitFor(i%posted, from) }

func (w *Work) waitFor(slot, from int) error {
	w.waitsFor(w.scope.ranks[from])
	err := w.recvs[slot].Wait(w.timeout())
	w.pending[slot] = false
	w.waited(err)
	return err
}

// send sends message i. If it has to wait, then since the last receive: a clock
// costs as much as half the rest of a short operation.
func (w *Work) send(i, to int, p []byte) error {
	peer := w.meshRank(to)
	if _, since := w.waits.Load(); since == 0 { // one between two ranks that was to go through shared memory
		w.g.scribe.look(w)
	}
	w.waits.Continue(peer)
	var err error
	if w.zeroCopy {
		err = w.g.lender.SendZeroCopy(peer, w.tag(i), p, w.g.cfg.Timeout)
	} else {
		err = w.g.mesh.Send(peer, w.tag(i), p, w.g.cfg.Timeout)
	}
	w.sent += int64(len(p))
	w.waited(err)
	return err
}

// zeroCopyMin is from how many bytes for each rank on large messages are lent and not
// copied, which ends with a word from who has received them. That word and the calls
// that look up the pages cost two ranks a third of a sum of 256 KiB each, a sixth at
// 512 KiB, and nothing that could be measured from 2 MiB on; four ranks on two cores
// a twentieth at 256 KiB, and they gain as much from 512 KiB on and a sixth at 1.5 MiB.
const zeroCopyMin = 1 << 20

// chooseZeroCopy decides whether send lends, as it does on all ranks: what an operation
// sends must then not be overwritten before its receiver has it, and the end of
// the operation is to wait for that.
func (w *Work) chooseZeroCopy() {
	w.zeroCopy = w.g.lender != nil && len(w.x)/w.scope.size >= zeroCopyMin
}

// waitsFor notes that the operation waits for a rank of the group.
func (w *Work) waitsFor(peer int) {
	if !w.stamped {
		w.g.scribe.look(w)
	}
	w.stamped = false
	w.waits.Continue(w.g.ranks[peer])
}

// waited notes that a wait has ended. Of one that has failed it stays known for whom it was.
func (w *Work) waited(err error) {
	if err == nil {
		w.waits.Clear()
	}
}

// stamp notes when the operation began.
func (w *Work) stamp() {
	w.g.scribe.look(w)
	w.stamped = true
}

// meshRank is the rank in the mesh of a place in the scope.
func (w *Work) meshRank(place int) int { return w.g.ranks[w.scope.ranks[place]] }

// room returns place for n bytes to arrive in for each posted receive.
func (w *Work) room(n int) {
	w.arrivalBuffers(posted, n)
}

// arrivalBuffers is room for another number of receives.
func (w *Work) arrivalBuffers(count, n int) {
	n = (n + cacheLine - 1) &^ (cacheLine - 1)
	if len(w.scratch) < count*n {
		w.scratch = make([]byte, count*n)
	}
}

// space is where message i of n bytes arrives to be added.
func (w *Work) space(i, n int) []byte { return w.spaceOf(i%posted, posted, n) }

// spaceOf is the space of one of count receives. It begins a cache line, whatever the
// scratch was made for: else every vector of the operands would lie in two.
func (w *Work) spaceOf(slot, count, n int) []byte {
	stride := len(w.scratch) / count &^ (cacheLine - 1)
	return w.scratch[slot*stride:][:n:n]
}
