package aggregate

import (
	"fmt"
	"math/bits"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/simd"
)

// serve carries out the exchange that all trainers have begun.
func (s *Server) serve() error {
	n, asked := s.layout.segments(s.Index()), 0
	for k := range n {
		for ; asked < min(n, k+maxInFlight); asked++ {
			s.ask(asked)
		}
		m := s.freeSum(k)
		if err := s.add(m); err != nil {
			return err
		}
		s.answer(m)
	}
	return nil
}

// ask posts the receives of segment k of every trainer, or of its sizes if sparse.
func (s *Server) ask(k int) {
	lo, hi := s.layout.at(s.Index(), k)
	for t := range s.trainers {
		sl := &s.trainers[t].slots[k%maxInFlight]
		sl.posted = true
		if s.head.kind == kindSparse {
			s.mesh.Post(&sl.recv, t, sizeTag(s.seq, k), sl.size[:])
		} else {
			s.mesh.Post(&sl.recv, t, bodyTag(s.seq, k), sl.body.bytes(s.code.Size(hi-lo)))
		}
	}
}

// await waits for a receive posted by ask.
func (s *Server) await(t, k int) error {
	sl := &s.trainers[t].slots[k%maxInFlight]
	s.wait.begin(t, s.seq)
	err := sl.recv.Wait(s.cfg.Timeout)
	s.wait.over(err)
	sl.posted = false
	return err
}

// add sets m to the sum of its segment.
func (s *Server) add(m *sum) error {
	lo, hi := s.layout.at(s.Index(), m.k)
	switch {
	case s.head.kind == kindSparse:
		return s.addSparse(m, lo, hi)
	case s.head.code == compress.CodeFP32:
		return s.addValues(m, hi-lo)
	}
	return s.addCoded(m, hi-lo)
}

// addValues adds float32 in the memory of rank 0's message. The sum's old memory then receives the
// next message.
func (s *Server) addValues(m *sum, n int) error {
	first := &s.trainers[0].slots[m.k%maxInFlight]
	acc := first.body.values(n)
	for t := range s.trainers {
		if err := s.await(t, m.k); err != nil {
			return err
		}
		s.received.Add(int64(4 * n))
		if t > 0 {
			s.kernels.Combine(simd.ReduceSum, acc, acc, s.trainers[t].slots[m.k%maxInFlight].body.values(n))
		}
	}
	first.body, m.room = m.room, first.body
	m.body = bytesview.Bytes(acc)
	return nil
}

// addCoded adds decoded values in float32, and codes the sum once; the trainers that retain it
// receive the error.
func (s *Server) addCoded(m *sum, n int) error {
	acc, part, bytes := s.acc.values(n), s.part.values(n), s.code.Size(n)
	for t := range s.trainers {
		if err := s.await(t, m.k); err != nil {
			return err
		}
		s.received.Add(int64(bytes))
		to := part
		if t == 0 {
			to = acc
		}
		if err := s.code.Decode(to, s.trainers[t].slots[m.k%maxInFlight].body.bytes(bytes)); err != nil {
			return s.damaged(t, m.k, err)
		}
		if t > 0 {
			s.kernels.Combine(simd.ReduceSum, acc, acc, part)
		}
	}
	m.body = m.room.bytes(bytes)
	if halves(s.head.code) {
		roundHalves(s.kernels, s.head.code, m.body, acc)
		return nil
	}
	if err := s.code.Encode(m.body, acc); err != nil {
		return valueFault(err, s.head.lo+m.lo, nil)
	}
	if !s.head.hasSumError(s.code, len(s.trainers)) {
		return nil
	}
	if err := s.code.Decode(part, m.body); err != nil {
		return err
	}
	m.lost = m.lostRoom.values(n)
	copy(m.lost, acc)
	s.kernels.Subtract(m.lost, part)
	return nil
}

// addSparse adds entries in a dense array and codes the entries present on any trainer.
func (s *Server) addSparse(m *sum, lo, hi int) error {
	if err := s.takeSparse(m.k, lo, hi); err != nil {
		return err
	}
	acc := s.acc.values(hi - lo)
	clear(acc)
	words := (hi - lo + 63) / 64
	if cap(s.present) < words {
		s.present = make([]uint64, words)
	}
	s.present, s.whole = s.present[:words], false
	clear(s.present)
	coder, err := s.coders.of(s.code)
	if err != nil {
		return err
	}
	for t := range s.trainers {
		if err := s.addPayload(coder, t, m.k, lo, hi); err != nil {
			return err
		}
	}
	// float32, because any other code would lose precision, and no process retains the error.
	if coder, err = s.coders.of(compress.FP32{}); err != nil {
		return err
	}
	var index []int32
	if s.whole {
		m.payload, err = coder.EncodeDense(m.payload[:0], acc)
	} else {
		s.union(acc)
		index = s.sparse.Index
		m.payload, err = coder.Encode(m.payload[:0], &s.sparse)
	}
	if err != nil {
		return valueFault(err, s.head.lo+lo, index)
	}
	m.body = m.payload
	size{bytes: len(m.body), base: lo}.encode(&m.size)
	return nil
}

// takeSparse waits for the sizes of a segment and asks for the bodies.
func (s *Server) takeSparse(k, lo, hi int) error {
	for t := range s.trainers {
		if err := s.await(t, k); err != nil {
			return err
		}
		tr := &s.trainers[t]
		var err error
		if tr.of, err = decodeSize(&tr.slots[k%maxInFlight].size, s.code, lo, hi); err != nil {
			return s.damaged(t, k, err)
		}
		s.received.Add(int64(sizeBytes + tr.of.bytes))
		tr.posted = true
		s.mesh.Post(&tr.recv, t, bodyTag(s.seq, k), tr.body.bytes(tr.of.bytes))
	}
	return nil
}

// addPayload adds the payload of rank t for values [lo, hi).
func (s *Server) addPayload(coder *compress.Coder, t, k, lo, hi int) error {
	tr := &s.trainers[t]
	s.wait.begin(t, s.seq)
	err := tr.recv.Wait(s.cfg.Timeout)
	s.wait.over(err)
	tr.posted = false
	if err != nil {
		return err
	}
	acc, body := s.acc.values(hi-lo), tr.body.bytes(tr.of.bytes)
	if dense(body) && s.head.block == 1 && tr.of.base == lo {
		part := s.part.values(hi - lo)
		if err := coder.DecodeDense(part, body); err != nil {
			return s.damaged(t, k, err)
		}
		s.kernels.Combine(simd.ReduceSum, acc, acc, part)
		s.whole = true
		return nil
	}
	in := &s.sparse
	if err := coder.Decode(in, body); err != nil {
		return s.damaged(t, k, err)
	}
	if end := tr.of.base + in.Len; end < hi || end > s.head.n {
		return s.damaged(t, k, fmt.Errorf("a payload of the values %d to %d, for a segment of the values %d to %d", tr.of.base, end, lo, hi))
	}
	for i, at := range in.Index {
		if at := int(at) + tr.of.base - lo; uint(at) < uint(len(acc)) {
			acc[at] += in.Value[i]
			s.present[at>>6] |= 1 << (at & 63)
		}
	}
	return nil
}

// union lists the present entries.
func (s *Server) union(acc []float32) {
	count := 0
	for _, w := range s.present {
		count += bits.OnesCount64(w)
	}
	s.sparse.Reset(len(acc))
	s.sparse.Reserve(count)
	for i, w := range s.present {
		for ; w != 0; w &= w - 1 {
			at := i<<6 + bits.TrailingZeros64(w)
			s.sparse.Append(at, acc[at])
		}
	}
}

// damaged returns an error of unreadable data from a trainer.
func (s *Server) damaged(t, k int, err error) error {
	return fmt.Errorf("what rank %d sent for segment %d: %w", t, k, err)
}
