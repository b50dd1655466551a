package message

import (
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/wire"
)

// SharedMicroBatch is a Micro whose tensors, labels and targets lie in shared memory (package
// internal/heter/sharedmem): of the trainer's a slot RequestSlot, from BodyAt on, in the form that
// they have in a frame. The results are wanted in slot ResultSlot of the heter-trainer's, from its
// begin on, of which the trainer names none again before it has read them; a SharedResult says that
// they are there, and is a Head. As it is sent:
//
//	offset bytes
//	0      40    Head
//	40     4     RequestSlot
//	44     4     ResultSlot
type SharedMicroBatch struct {
	Head
	RequestSlot, ResultSlot int
}

// PlacedSize is the length of a SharedMicroBatch.
const PlacedSize = HeadSize + 8

// BodyAt is where in a slot a micro-batch's tensors begin: before them is room for the frame that they become for a heter-trainer of another
// host, and they lie at the begin of a line of the processor's cache.
const BodyAt = 128

// FrameAt is where in a slot the frame of a Micro begins.
const FrameAt = BodyAt - HeadSize - wire.HeaderSize

// Append appends p to b.
func (p SharedMicroBatch) Append(b []byte) []byte {
	n := len(b)
	b = append(b, make([]byte, HeadSize)...)
	p.Put(b[n:])
	return le.AppendUint32(le.AppendUint32(b, uint32(p.RequestSlot)), uint32(p.ResultSlot))
}

// ParsePlaced reads what Append wrote.
func ParsePlaced(b []byte) (p SharedMicroBatch, err error) {
	if len(b) != PlacedSize {
		return p, Malformed("a placed micro-batch of %d bytes, want %d", len(b), PlacedSize)
	}
	p.Head, err = ParseHead(b[:HeadSize])
	p.RequestSlot, p.ResultSlot = int(le.Uint32(b[HeadSize:])), int(le.Uint32(b[HeadSize+4:]))
	return p, err
}

// Slots are the lengths of the slots that hold any micro-batch of up to so many samples that a frame can: the trainer's, and those of results. They hold so
// many values that are lent, too, or their gradients, unless these take more than a frame can; 0: none are.
func (l Layout) Slots(samples, lent int) (there, back int) {
	there, back = BodyAt+min(l.RequestBytes(samples), wire.MaxPayload), min(l.ResultBytes(samples, false), wire.MaxPayload)
	if lent <= wire.MaxPayload/4 {
		there, back = max(there, 4*lent), max(back, 4*lent)
	}
	return there, back
}

// Borrow makes m of a SharedMicroBatch whose slot has b, There-HeadSize bytes from BodyAt on, and
// whose results go to back, Back-HeadSize bytes. As fp32, m's tensors lie in b and those of the
// results in back; else they are m's own. Labels and targets, which are looked at, are copied
// first: who writes b may do so while it is read. m is for this and Return alone.
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

// Return writes the results of m to back, where they do not lie there since Borrow, and the
// SharedResult that tells of them to b.
func (l Layout) Return(b, back []byte, m *heter.MicroBatch, number uint64) error {
	doneHead(m, number).Put(b)
	if l.direct() {
		return nil
	}
	return l.results(back, m)
}

// ParsePlacedDone reads results that a SharedResult with head h tells of into m, which was sent and
// has the memory for them. back has Back-HeadSize bytes.
func (l Layout) ParsePlacedDone(h Head, back []byte, m *heter.MicroBatch) error {
	return l.parse(h, back, m)
}

// direct says that tensors lie in frames as they do in memory.
func (l Layout) direct() bool { return l.Code == message.FP32 }

// point makes m's tensors lie in b.
func (l Layout) point(samples int, b []byte, m *heter.MicroBatch) {
	m.N, m.In, m.Grads = samples, bytesview.Sized(m.In, len(l.Cut.In)), bytesview.Sized(m.Grads, len(l.Cut.In))
	m.Labels, m.Targets = bytesview.Sized(m.Labels, samples*l.Cut.Labels), bytesview.Sized(m.Targets, samples*l.Cut.Targets)
	at := 0
	for i, c := range l.Cut.In {
		m.In[i], at = values(b, at, samples*c.Len())
	}
}

// values are n of those in b from place at on, and where they end.
func values(b []byte, at, n int) ([]float32, int) {
	return bytesview.As[float32](b[at : at+4*n : at+4*n]), at + 4*n
}
