package message

import (
	"math"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/wire"
)

// Layout encodes micro-batches of a cut in frames.
type Layout struct {
	Cut  *heter.Cut
	Code message.Code // encoding of the cut's tensors and their gradients
}

// RequestBytes returns the length of a Micro of n samples in bytes, with its head; math.MaxInt64 if
// too long for a frame.
func (l Layout) RequestBytes(n int) int {
	size := l.size(n, func(heter.CutTensor) bool { return true })
	return bounded(float64(size) + 4*float64(n)*float64(l.Cut.Labels+l.Cut.Targets))
}

// ResultBytes returns the length of a Done of n samples in bytes, with its head; math.MaxInt64 if
// too long for a frame. An evaluation has no gradients.
func (l Layout) ResultBytes(n int, eval bool) int {
	out := 4 * n
	for _, d := range l.Cut.Out {
		out *= d
	}
	return bounded(float64(l.size(n, func(c heter.CutTensor) bool { return c.Grad && !eval })) + float64(out))
}

func bounded(size float64) int {
	if size > wire.MaxPayload {
		return math.MaxInt64
	}
	return int(size)
}

// size returns the size of a head and selected tensors.
func (l Layout) size(n int, which func(heter.CutTensor) bool) int {
	size := HeadSize
	for _, c := range l.Cut.In {
		if which(c) {
			size += l.Code.Size(n * c.Len())
		}
	}
	return size
}

// Micro encodes a micro-batch into b, of RequestBytes(m.N) bytes.
func (l Layout) Micro(b []byte, m *heter.MicroBatch, number, step uint64) error {
	Head{Number: number, Step: step, Index: m.Index, Samples: m.N, Seed: m.Seed, Eval: m.Eval, BF16: m.BF16}.Put(b)
	at, err := l.encode(b, HeadSize, m.In)
	if err != nil {
		return err
	}
	at += copy(b[at:], bytesview.Bytes(m.Labels))
	copy(b[at:], bytesview.Bytes(m.Targets))
	return nil
}

// ParseMicro decodes a micro-batch of at most `most` samples into m, and grows m as needed. A wrong
// length is malformed.
func (l Layout) ParseMicro(b []byte, m *heter.MicroBatch, most int) (Head, error) {
	h, err := ParseHead(b)
	switch {
	case err != nil:
		return h, err
	case h.Samples > most:
		return h, Malformed("micro-batch %d has %d samples, the limit is %d", h.Number, h.Samples, most)
	case len(b) != l.RequestBytes(h.Samples):
		return h, Malformed("micro-batch %d of %d samples has %d bytes, the part takes %d", h.Number, h.Samples, len(b), l.RequestBytes(h.Samples))
	}
	return h, l.take(h, b[HeadSize:], m, false)
}

// take decodes the body of a Micro. With near the tensors alias b.
func (l Layout) take(h Head, b []byte, m *heter.MicroBatch, near bool) error {
	if near {
		l.point(h.Samples, b, m)
	} else {
		m.Size(l.Cut, h.Samples)
	}
	m.Index, m.Seed, m.Eval, m.BF16 = h.Index, h.Seed, h.Eval, h.BF16
	at := 0
	for i, x := range m.In {
		n := l.Code.Size(len(x))
		if !near {
			if err := l.Code.Decode(m.In[i], b[at:at+n]); err != nil {
				return Malformed("micro-batch %d: %v", h.Number, err)
			}
		}
		at += n
	}
	at += copy(bytesview.Bytes(m.Labels), b[at:])
	copy(bytesview.Bytes(m.Targets), b[at:])
	for i, label := range m.Labels {
		if k := l.Cut.Classes; k > 0 && (label < 0 || int(label) >= k) {
			return Malformed("micro-batch %d: sample %d has label %d, and there are %d classes", h.Number, i/l.Cut.Labels, label, k)
		}
	}
	return nil
}

// Done encodes the results of a micro-batch into b, of ResultBytes(m.N, m.Eval) bytes.
func (l Layout) Done(b []byte, m *heter.MicroBatch, number uint64) error {
	doneHead(m, number).Put(b)
	return l.results(b[HeadSize:], m)
}

func doneHead(m *heter.MicroBatch, number uint64) Head {
	return Head{Number: number, Samples: m.N, Loss: m.Loss, Terms: m.Terms, Correct: m.Correct}
}

// results encodes the body of a Done.
func (l Layout) results(b []byte, m *heter.MicroBatch) error {
	at := copy(b, bytesview.Bytes(m.Out))
	if m.Eval {
		return nil
	}
	_, err := l.encode(b, at, m.Grads)
	return err
}

// ParseDone decodes a Done into the sent m.
func (l Layout) ParseDone(b []byte, m *heter.MicroBatch) error {
	h, err := ParseHead(b)
	if err == nil && len(b) != l.ResultBytes(m.N, m.Eval) {
		err = Malformed("the results of micro-batch %d are %d bytes, want %d of %d samples", h.Number, len(b), l.ResultBytes(m.N, m.Eval), m.N)
	}
	if err != nil {
		return err
	}
	return l.parse(h, b[HeadSize:], m)
}

// parse decodes the body b of a Done.
func (l Layout) parse(h Head, b []byte, m *heter.MicroBatch) error {
	if h.Samples != m.N || h.Terms < 1 {
		return Malformed("the results of micro-batch %d are of %d samples and %d terms of a loss, want %d samples", h.Number, h.Samples, h.Terms, m.N)
	}
	m.Loss, m.Terms, m.Correct = h.Loss, h.Terms, h.Correct
	at := copy(bytesview.Bytes(m.Out), b)
	for _, g := range m.Grads {
		if g == nil || m.Eval {
			continue
		}
		n := l.Code.Size(len(g))
		if err := l.Code.Decode(g, b[at:at+n]); err != nil {
			return Malformed("the results of micro-batch %d: %v", h.Number, err)
		}
		at += n
	}
	return nil
}

// encode encodes non-nil tensors from index at, and returns their end.
func (l Layout) encode(b []byte, at int, xs [][]float32) (int, error) {
	for _, x := range xs {
		if x == nil {
			continue
		}
		n := l.Code.Size(len(x))
		if err := l.Code.Encode(b[at:at+n], x); err != nil {
			return at, err
		}
		at += n
	}
	return at, nil
}
