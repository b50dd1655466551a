package aggregate

import (
	"hash/fnv"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// scribe records exchanges, once for each: trainers as operations of record.SumGroup, of which a server has a request each.
//
// Cost: 50 ns and two looks at the clock for an exchange, which takes at least two messages through the system.
type scribe struct {
	rec       *record.Recorder
	what, how record.Name
}

func newScribe(rec *record.Recorder) scribe {
	return scribe{rec: rec, what: rec.Name("exchange"), how: rec.Name(Algorithm)}
}

// begin records that a trainer begins an exchange.
func (s *scribe) begin(f *flight) record.Op {
	e := s.event(f.head)
	e.Kind, e.Seq = record.Operation, f.seq
	if b := f.op.Bucket; b.First != "" {
		e.Bucket, e.Label = int32(b.Number), b.Label
	}
	return s.rec.Begin(&e)
}

// serve records that a server has heard of an exchange.
func (s *scribe) serve(h head, seq uint32) record.Op {
	e := s.event(h)
	e.Kind, e.Seq, e.Step = record.Request, seq, -1
	e.Sig = 0 // it has no rows
	return s.rec.Begin(&e)
}

func (s *scribe) event(h head) record.Event {
	var b [headBytes]byte
	h.encode(&b)
	sum := fnv.New64a()
	_, _ = sum.Write(b[:]) // never fails
	return record.Event{
		Name: s.what, How: s.how, Bucket: -1, Group: record.SumGroup, With: -1, Peer: -1, Size: int64(4 * h.n), Sent: -1, Sig: sum.Sum64(), Begun: s.rec.Now(),
	}
}
