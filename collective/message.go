package collective

import "github.com/ringo-ml/ringo/transport"

// The messages of an operation: tags, sends, receives, waits, and buffers for received operands.

const (
	// posted is the number of receives that an operation starts before their messages arrive.
	posted = 4
	// slots is the maximum number of receives in progress, for short messages of many ranks.
	slots = 32
)

// tag returns the tag of message i of the operation, between two ranks.
func (w *Work) tag(i int) transport.Tag {
	return transport.Tag{Group: w.group, Seq: w.seq, Part: w.base + uint32(i), Sig: uint64(w.sig)}
}

// number returns a message number from the step of the algorithm and the segment.
func number(step, segment int) int { return step<<numberBits | segment }

const (
	numberBits = 20 // bits of the segment in a message number
	stepBits   = 10 // bits of the step
	phaseBits  = 30 // first bit of the phase, two bits: see Work.base
)

// post starts the receive of message i from a rank of the scope into dst, in slot i modulo posted.
func (w *Work) post(i, from int, dst []byte) { w.postTo(i%posted, i, from, dst) }

// postTo is post with a given slot.
func (w *Work) postTo(slot, i, from int, dst []byte) {
	w.pending[slot] = true
	w.g.mesh.Post(&w.recvs[slot], w.meshRank(from), w.tag(i), dst)
}

// wait waits for the posted message i.
func (w *Work) wait(i, from int) error { return w.waitFor(i%posted, from) }

func (w *Work) waitFor(slot, from int) error {
	w.waitsFor(w.scope.ranks[from])
	err := w.recvs[slot].Wait(w.timeout())
	w.pending[slot] = false
	w.waited(err)
	return err
}

// send sends message i. If the send waits, its recorded wait begins at the end of the last receive:
// a clock read would take half as long as the rest of a short operation.
func (w *Work) send(i, to int, p []byte) error {
	peer := w.meshRank(to)
	if _, since := w.waits.Load(); since == 0 { // a point-to-point operation moved from shared memory to the mesh
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

// zeroCopyMin is the smallest size per rank, in bytes, of zero-copy sends. A zero-copy send waits
// for a notice of the receiver. This wait and the page look-ups make an allreduce of two ranks take
// a third longer at 256 KiB per rank, a sixth longer at 512 KiB, and no longer from 2 MiB on. With
// four ranks on two cores it takes a twentieth longer at 256 KiB, a twentieth less from 512 KiB on,
// and a sixth less at 1.5 MiB.
const zeroCopyMin = 1 << 20

// chooseZeroCopy decides, equally on all ranks, whether the operation's sends are zero-copy. If so,
// the operation must not overwrite data before the receiver has them, and ends after a notice of
// the receiver.
func (w *Work) chooseZeroCopy() {
	w.zeroCopy = w.g.lender != nil && len(w.x)/w.scope.size >= zeroCopyMin
}

// waitsFor records that the operation waits for a rank of the group.
func (w *Work) waitsFor(peer int) {
	if !w.stamped {
		w.g.scribe.look(w)
	}
	w.stamped = false
	w.waits.Continue(w.g.ranks[peer])
}

// waited records the end of a wait. After an error the awaited rank stays recorded.
func (w *Work) waited(err error) {
	if err == nil {
		w.waits.Clear()
	}
}

// stamp records the start of the operation.
func (w *Work) stamp() {
	w.g.scribe.look(w)
	w.stamped = true
}

// meshRank returns the mesh rank of a place in the scope.
func (w *Work) meshRank(place int) int { return w.g.ranks[w.scope.ranks[place]] }

// room ensures that the posted receives have buffers of n bytes each.
func (w *Work) room(n int) {
	w.arrivalBuffers(posted, n)
}

// arrivalBuffers ensures that count buffers of n bytes exist.
func (w *Work) arrivalBuffers(count, n int) {
	n = (n + cacheLine - 1) &^ (cacheLine - 1)
	if len(w.scratch) < count*n {
		w.scratch = make([]byte, count*n)
	}
}

// space returns the buffer for message i, of n bytes, whose values are added later.
func (w *Work) space(i, n int) []byte { return w.spaceOf(i%posted, posted, n) }

// spaceOf returns one of count buffers, n bytes of it. Each begins at a cache line: otherwise every
// vector load would touch two lines.
func (w *Work) spaceOf(slot, count, n int) []byte {
	stride := len(w.scratch) / count &^ (cacheLine - 1)
	return w.scratch[slot*stride:][:n:n]
}
