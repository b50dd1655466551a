package aggregate

import (
	"sync"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// sum is a segment's sum, in transit to the trainers.
type sum struct {
	seq  uint32 // number of the exchange
	head head
	k    int
	lo   int // the first value

	body      []byte // message to send, in room or payload
	room      buffer
	payload   []byte
	size      [sizeBytes]byte // size message of a sparse body
	lost      []float32       // sum error, if sent
	lostRoom  buffer
	travelled sync.WaitGroup // counts trainers that still await it
}

// freeSum returns the buffer for the sum of segment k after all trainers have received its earlier
// sum. If a trainer does not read its sums, all trainers wait here for it, for at most Timeout.
func (s *Server) freeSum(k int) *sum {
	m := &s.sums[s.made%maxInFlight]
	s.made++
	m.travelled.Wait()
	m.seq, m.head, m.k, m.lost = s.seq, s.head, k, nil
	m.lo, _ = s.layout.at(s.Index(), k)
	return m
}

// answer queues m for all senders. It does not block: channels have capacity for all sums.
func (s *Server) answer(m *sum) {
	m.travelled.Add(len(s.trainers))
	s.queued.Add(int64(len(s.trainers)))
	for t := range s.trainers {
		s.trainers[t].toSend <- m
	}
}

// send sends sums to a trainer until the channel closes. After an error it discards them, so that
// no goroutine waits.
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

// sendSumError sends a trainer its part of the sum error of m.
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
