package ps

import (
	"fmt"
	"math/bits"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/simd"
)

// serve carries the exchange out that all trainers have begun.
func (s *Server) serve() error {
	n, asked := s.layout.segments(s.Index()), 0
	for k := range n {
		for ; asked < min(n, k+ahead); asked++ {
			s.ask(asked)
		}
		sum, err := s.add(k)
		if err != nil {
			return err
		}
		if err := s.answer(k, sum); err != nil {
			return err
		}
	}
	return nil
}

// ask posts the receives of segment k of every trainer, of sparse ones those of
// the sizes.
func (s *Server) ask(k int) {
	lo, hi := s.layout.at(s.Index(), k)
	for t := range s.trainers {
		sl := &s.trainers[t].slots[k%ahead]
		sl.posted = true
		if s.head.kind == kindSparse {
			s.mesh.Post(&sl.recv, t, sizeTag(s.seq, k), sl.size[:])
		} else {
			s.mesh.Post(&sl.recv, t, bodyTag(s.seq, k), sl.body.bytes(s.code.Size(hi-lo)))
		}
	}
}

// await waits for what ask has posted.
func (s *Server) await(t, k int) error {
	sl := &s.trainers[t].slots[k%ahead]
	s.wait.begin(t, s.seq)
	err := sl.recv.Wait(s.cfg.Timeout)
	s.wait.end()
	sl.posted = false
	return err
}

// add returns the body of the sum of segment k.
func (s *Server) add(k int) ([]byte, error) {
	lo, hi := s.layout.at(s.Index(), k)
	switch {
	case s.head.kind == kindSparse:
		return s.addSparse(k, lo, hi)
	case s.head.code == compress.CodeFP32:
		return s.addValues(k, hi-lo)
	}
	return s.addCoded(k, hi-lo)
}

// addValues adds float32 in the memory in which rank 0's came.
func (s *Server) addValues(k, n int) ([]byte, error) {
	acc := s.trainers[0].slots[k%ahead].body.values(n)
	for t := range s.trainers {
		if err := s.await(t, k); err != nil {
			return nil, err
		}
		s.received.Add(int64(4 * n))
		if t > 0 {
			s.kernels.Combine(simd.ReduceSum, acc, acc, s.trainers[t].slots[k%ahead].body.values(n))
		}
	}
	return bytesOf(acc), nil
}

// addCoded adds what it decodes, in float32, and codes the sum once.
func (s *Server) addCoded(k, n int) ([]byte, error) {
	acc, part, bytes := s.acc.values(n), s.part.values(n), s.code.Size(n)
	for t := range s.trainers {
		if err := s.await(t, k); err != nil {
			return nil, err
		}
		s.received.Add(int64(bytes))
		to := part
		if t == 0 {
			to = acc
		}
		if err := s.code.Decode(to, s.trainers[t].slots[k%ahead].body.bytes(bytes)); err != nil {
			return nil, s.damaged(t, k, err)
		}
		if t > 0 {
			s.kernels.Combine(simd.ReduceSum, acc, acc, part)
		}
	}
	out := s.trainers[0].slots[k%ahead].body.bytes(bytes)
	if halves(s.head.code) {
		roundHalves(s.kernels, s.head.code, out, acc)
		return out, nil
	}
	if err := s.code.Encode(out, acc); err != nil {
		lo, _ := s.layout.at(s.Index(), k)
		return nil, valueFault(err, s.head.lo+lo, nil)
	}
	return out, nil
}

// addSparse adds entries in a dense array and codes those that any trainer had.
func (s *Server) addSparse(k, lo, hi int) ([]byte, error) {
	if err := s.takeSparse(k, lo, hi); err != nil {
		return nil, err
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
		return nil, err
	}
	for t := range s.trainers {
		if err := s.addPayload(coder, t, k, lo, hi); err != nil {
			return nil, err
		}
	}
	// A sum of few values in their code would lose, and nobody keeps what is lost.
	if coder, err = s.coders.of(compress.FP32{}); err != nil {
		return nil, err
	}
	var index []int32
	if s.whole {
		s.out, err = coder.EncodeDense(s.out[:0], acc)
	} else {
		s.union(acc)
		index = s.sparse.Index
		s.out, err = coder.Encode(s.out[:0], &s.sparse)
	}
	if err != nil {
		return nil, valueFault(err, s.head.lo+lo, index)
	}
	return s.out, nil
}

// takeSparse waits for the sizes of a segment and asks for the bodies.
func (s *Server) takeSparse(k, lo, hi int) error {
	for t := range s.trainers {
		if err := s.await(t, k); err != nil {
			return err
		}
		tr := &s.trainers[t]
		var err error
		if tr.of, err = decodeSize(&tr.slots[k%ahead].size, s.code, lo, hi); err != nil {
			return s.damaged(t, k, err)
		}
		s.received.Add(int64(sizeBytes + tr.of.bytes))
		tr.posted = true
		s.mesh.Post(&tr.recv, t, bodyTag(s.seq, k), tr.body.bytes(tr.of.bytes))
	}
	return nil
}

// addPayload adds what rank t sent for values [lo, hi).
func (s *Server) addPayload(coder *compress.Coder, t, k, lo, hi int) error {
	tr := &s.trainers[t]
	s.wait.begin(t, s.seq)
	err := tr.recv.Wait(s.cfg.Timeout)
	s.wait.end()
	tr.posted = false
	if err != nil {
		return err
	}
	acc, body := s.acc.values(hi-lo), tr.body.bytes(tr.of.bytes)
	if dense(body) && s.head.block == 1 {
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
		return s.damaged(t, k, fmt.Errorf("a payload of the values %d to %d for %d to %d", tr.of.base, end, lo, hi))
	}
	for i, at := range in.Index {
		if at := int(at) + tr.of.base - lo; uint(at) < uint(len(acc)) {
			acc[at] += in.Value[i]
			s.present[at>>6] |= 1 << (at & 63)
		}
	}
	return nil
}

// union lists the entries that are present.
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

// answer sends the sum of segment k to all trainers.
func (s *Server) answer(k int, sum []byte) error {
	for t := range s.trainers {
		if s.head.kind == kindSparse {
			lo, _ := s.layout.at(s.Index(), k)
			size{bytes: len(sum), base: lo}.encode(&s.size)
			if err := s.mesh.Send(t, sizeTag(s.seq, k), s.size[:], s.cfg.Timeout); err != nil {
				return err
			}
			s.sent.Add(sizeBytes)
		}
		if err := s.mesh.Send(t, bodyTag(s.seq, k), sum, s.cfg.Timeout); err != nil {
			return err
		}
		s.sent.Add(int64(len(sum)))
	}
	return nil
}

// damaged says that what a trainer sent cannot be read.
func (s *Server) damaged(t, k int, err error) error {
	return fmt.Errorf("what rank %d sent for segment %d: %w", t, k, err)
}
