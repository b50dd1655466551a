package message

import (
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/wire"
)

// SharedMicroBatch is a Micro with its tensors, labels and targets in shared memory (package
// internal/heter/sharedmem): in slot RequestSlot of the trainer's memory, from BodyAt on, encoded
// as in a frame. The heter-trainer writes the results to the start of slot ResultSlot of its
// memory. The trainer reads the results before it names the slot again; a SharedResult, a Head,
// reports them. Its encoding:
//
//	offset bytes
//	0      48    Head
//	48     4     RequestSlot
//	52     4     ResultSlot
type SharedMicroBatch struct {
	Head
	RequestSlot, ResultSlot int
}

// PlacedSize is the size of a SharedMicroBatch.
const PlacedSize = HeadSize + 8

// BodyAt is the offset of a micro-batch's tensors in a slot: after space for the frame header, for
// a heter-trainer of another host, and aligned to a cache line.
const BodyAt = 128

// FrameAt is the offset of the frame of a Micro in a slot.
const FrameAt = BodyAt - HeadSize - wire.HeaderSize

// Append appends p to b.
func (p SharedMicroBatch) Append(b []byte) []byte {
	n := len(b)
	b = append(b, make([]byte, HeadSize)...)
	p.Put(b[n:])
	return le.AppendUint32(le.AppendUint32(b, uint32(p.RequestSlot)), uint32(p.ResultSlot))
}

// ParsePlaced decodes Append's encoding.
func ParsePlaced(b []byte) (p SharedMicroBatch, err error) {
	if len(b) != PlacedSize {
		return p, Malformed("a placed micro-batch of %d bytes, want %d", len(b), PlacedSize)
	}
	p.Head, err = ParseHead(b[:HeadSize])
	p.RequestSlot, p.ResultSlot = int(le.Uint32(b[HeadSize:])), int(le.Uint32(b[HeadSize+4:]))
	return p, err
}

// Slots returns the sizes of the trainer's slots and of the result slots, for any micro-batch of up
// to samples within a frame, and for parameters of a stateless stage or their gradients, unless too
// long for a frame; 0: none.
func (l Layout) Slots(samples, lent int) (there, back int) {
	there, back = BodyAt+min(l.RequestBytes(samples), wire.MaxPayload), min(l.ResultBytes(samples, false), wire.MaxPayload)
	if lent <= wire.MaxPayload/4 {
		there, back = max(there, 4*lent), max(back, 4*lent)
	}
	return there, back
}

// Borrow decodes a SharedMicroBatch into m from b, RequestBytes-HeadSize bytes from BodyAt, with
// results in back, ResultBytes-HeadSize bytes. With fp32 m's tensors alias b and its results alias
// back; otherwise m has copies. Labels and targets are copied before their validation, because the
// writer may change b. m is for Borrow and Return only.
func (l Layout) Borrow(h Head, b, back []byte, m *heter.MicroBatch) error {
	if err := l.take(h, b, m, l.direct()); err != nil || !l.direct() {
		return err
	}
	at := 0
	m.Out, at = values(back, at, (l.ResultBytes(h.Samples, true)-HeadSize)/4)
	for i, c := range l.Cut.In {
		if m.Grads[i] = nil; c.Grad && !h.Eval {
			m.Grads[i], at = values(back, at, h.Samples*c.Len())
		}
	}
	return nil
}

// Return encodes the results of m into back, unless already there, and the SharedResult into b.
func (l Layout) Return(b, back []byte, m *heter.MicroBatch, number uint64) error {
	doneHead(m, number).Put(b)
	if l.direct() {
		return nil
	}
	return l.results(back, m)
}

// ParsePlacedDone decodes results in back, of ResultBytes-HeadSize bytes, with the head h of a
// SharedResult, into the sent m.
func (l Layout) ParsePlacedDone(h Head, back []byte, m *heter.MicroBatch) error {
	return l.parse(h, back, m)
}

// direct reports whether the encoding of tensors is the same as their form in memory.
func (l Layout) direct() bool { return l.Code == message.FP32 }

// point makes m's tensors alias b.
func (l Layout) point(samples int, b []byte, m *heter.MicroBatch) {
	m.N, m.In, m.Grads = samples, bytesview.Sized(m.In, len(l.Cut.In)), bytesview.Sized(m.Grads, len(l.Cut.In))
	m.Labels, m.Targets = bytesview.Sized(m.Labels, samples*l.Cut.Labels), bytesview.Sized(m.Targets, samples*l.Cut.Targets)
	at := 0
	for i, c := range l.Cut.In {
		m.In[i], at = values(b, at, samples*c.Len())
	}
}

// values returns n values of b from offset at, and their end.
func values(b []byte, at, n int) ([]float32, int) {
	return bytesview.As[float32](b[at : at+4*n : at+4*n]), at + 4*n
}
