package aggregate

import (
	"sync"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// sum is that of a segment, on its way to the trainers.
type sum struct {
	seq  uint32 // of the exchange
	head head
	k    int
	lo   int // the first value

	body      []byte // as it is sent, in one of the next two
	room      buffer
	payload   []byte
	size      [sizeBytes]byte // of a sparse body
	lost      []float32       // what coding it lost, where that is sent
	lostRoom  buffer
	travelled sync.WaitGroup // counts the trainers that have not been sent it
}

// freeSum is where the sum of segment k is to be made: it has gone to all trainers
// that was there. A trainer that does not read holds the others up from here on, by
// as many segments as it has not read, and no longer than Timeout.
func (s *Server) freeSum(k int) *sum {
	m := &s.sums[s.made%maxInFlight]
	s.made++
	m.travelled.Wait()
	m.seq, m.head, m.k, m.lost = s.seq, s.head, k, nil
	m.lo, _ = s.layout.at(s.Index(), k)
	return m
}

// answer gives m to what sends it. It does not block: there is room for all sums.
func (s *Server) answer(m *sum) {
	m.travelled.Add(len(s.trainers))
	s.queued.Add(int64(len(s.trainers)))
	for t := range s.trainers {
		s.trainers[t].toSend <- m
	}
}

// send sends sums to a trainer until there will be none. After a fault it passes
// them by, so that nobody waits for them.
func (s *Server) send(t int) {
	for m := range s.trainers[t].toSend {
		if s.fault.Load() == nil {
			if err := s.sendSum(t, m); err != nil {
				s.fail(m.seq, m.head.String(), err)
			}
		}
		s.queued.Add(-1)
		m.travelled.Done()
	}
}

func (s *Server) sendSum(t int, m *sum) error {
	if m.head.kind == kindSparse {
		if err := s.mesh.Send(t, sizeTag(m.seq, m.k), m.size[:], s.cfg.Timeout); err != nil {
			return err
		}
		s.sent.Add(sizeBytes)
	}
	if err := s.mesh.Send(t, bodyTag(m.seq, m.k), m.body, s.cfg.Timeout); err != nil {
		return err
	}
	s.sent.Add(int64(len(m.body)))
	return s.sendSumError(t, m)
}

// sendSumError sends a trainer its part of what coding m lost.
func (s *Server) sendSumError(t int, m *sum) error {
	lo, hi := m.head.errorRange(t, len(s.trainers))
	lo, hi = overlap(lo, hi, m.lo, m.lo+len(m.lost))
	if lo >= hi {
		return nil
	}
	if err := s.mesh.Send(t, lostTag(m.seq, m.k), bytesview.Bytes(m.lost[lo-m.lo:hi-m.lo]), s.cfg.Timeout); err != nil {
		return err
	}
	s.sent.Add(int64(4 * (hi - lo)))
	return nil
}
