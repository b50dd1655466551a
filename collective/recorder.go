package collective

import (
	"errors"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/transport"
)

// opRecorder records a group's operations.
//
// An operation is recorded when its caller starts it, not when a worker runs it. Until the
// operation ends, Work.waits points into its record, where the awaited rank is. The record is
// reused afterwards; therefore the end and all reads of waits hold the group's lock.
//
// Cost: 10 ns for a short operation through shared memory (200 ns), which is recorded in the
// group's lane, a shorter form, and reads the clock only in a long wait; 50 ns and two reads of the
// clock for other operations.
type opRecorder struct {
	rec    *record.Recorder
	lane   *record.OpRing // under the group's lock; nil: none was free
	group  uint32
	kinds  [kinds]record.Name
	hows   [methods]record.Name
	bucket atomic.Uint64 // current bucket: number plus one in the high bits, name in the low 16 bits
	like   likeness      // operation of draft
	draft  record.Draft
}

// likeness has the fields of a record that operations often repeat, without its number.
type likeness struct {
	sig    signature
	kind   kind
	root   int
	bytes  int
	bucket uint64
}

// shortBytes is the size in bytes from which an operation takes so long that the cost of reading
// the clock is negligible.
const shortBytes = 64 << 10

// ownRecord configures the recorder of a group without Config.Record: as large as Begun needs.
var ownRecord = record.Config{Operations: 2 * begun, Phases: begun, Open: 2 * maxInFlight, Lanes: 1, Names: 2 << 10}

// attend prepares the group to record its operations.
func (g *Group) attend() {
	s := &g.scribe
	s.rec, s.group = g.cfg.Record, g.cfg.ID
	if s.rec == nil {
		s.rec = record.New(ownRecord)
	}
	if g.size > 1 {
		s.lane = s.rec.Lane(&g.mu)
	}
	for k := range kinds {
		s.kinds[k] = s.rec.Name(k.String())
	}
	for m := range methods {
		if m != byRules {
			s.hows[m] = s.rec.Name(m.String())
		}
	}
}

// Recorder returns the recorder of the group's operations.
func (g *Group) Recorder() *record.Recorder { return g.scribe.rec }

// For sets the bucket (a range of gradients) of the operations that start from now on, for their
// records: its number, or -1 for none, and its name in the group's recorder. Only one goroutine may
// use a group with For.
func (g *Group) For(bucket int, label record.Name) {
	g.scribe.bucket.Store(uint64(bucket+1)<<16 | uint64(label))
}

// begin records the start of w, except in a group of one rank. blocking reports whether the caller
// waits. g.mu is held, so that records are in the order of numbers.
func (s *opRecorder) begin(w *Work, blocking bool) {
	if w.hasStart = !blocking; w.g.size == 1 {
		return
	}
	if blocking && w.bytes() < shortBytes {
		if k, bucket := &s.like, s.bucket.Load(); k.sig != w.sig || k.bucket != bucket || k.bytes != w.bytes() || k.root != w.root || k.kind != w.kind {
			e := s.event(w)
			*k, s.draft = likeness{sig: w.sig, kind: w.kind, root: w.root, bytes: w.bytes(), bucket: bucket}, e.Draft()
		}
		s.draft.Seq(w.seq)
		w.entry, w.hasRing = s.lane.Begin(&s.draft), true
	}
	if !w.entry.Recorded() {
		w.begun, w.hasStart, w.hasRing = s.rec.Now(), true, false
		e := s.event(w)
		e.Begun = w.begun
		w.entry = s.rec.Begin(&e)
	}
	if w.waits = w.entry.Wait(); w.waits == nil {
		w.waits = &w.ownWaits
		w.ownWaits.Clear()
	}
}

// event returns the record of the start of w, without the time.
func (s *opRecorder) event(w *Work) record.Event {
	bucket := s.bucket.Load()
	e := record.Event{
		Kind: record.Operation, Name: s.kinds[w.kind], Algorithm: s.hows[w.algorithm], Bucket: int32(bucket>>16) - 1, Label: record.Name(bucket),
		Group: s.group, Seq: w.seq, Other: -1, Peer: -1, Sent: -1, Size: int64(w.bytes()), Sig: uint64(w.sig),
	}
	switch {
	case w.kind.pairs():
		e.Kind, e.Bucket, e.Label, e.Other = record.Message, -1, 0, int32(w.g.ranks[w.root])
	case w.kind.rooted():
		e.Other = int32(w.g.ranks[w.root])
	}
	return e
}

// look records the start of a wait of w. An operation in the lane has no start time: its first wait
// reads the clock for the first time.
func (s *opRecorder) look(w *Work) {
	now := s.rec.Now()
	if !w.hasStart {
		w.begun, w.hasStart = now, true
	}
	w.waits.Start(now)
}

// stop reads the clock at the end of w, if the clock was read at the start or in a wait.
func (s *opRecorder) stop(w *Work) {
	w.end = record.Unknown
	if w.hasStart {
		w.end = s.rec.Now()
	}
}

// ended records the end of w, if it has begun. g.mu is held, so that no reader of w.waits remains
// when the record is reused.
func (s *opRecorder) ended(w *Work) {
	if w.hasRing && w.hasStart {
		w.entry.Began(w.begun)
	}
	if w.algorithm == byDirect && w.err == nil && w.kind != kindReceive && w.g.share != nil {
		w.g.share.windows.BytesCarried.Add(int64(w.bytes()))
	}
	w.entry.End(w.end, w.sent, w.err != nil)
	w.entry, w.hasRing, w.stamped, w.waits = record.Op{}, false, false, &w.ownWaits
}

// leave releases the lane on its first call, for another group. g.mu is held.
func (s *opRecorder) leave() {
	s.lane.Free()
	s.lane = nil
}

// fault records the error that has broken the group, and the lost rank that the error names.
func (s *opRecorder) fault(cause *OpError) {
	now, with := s.rec.Now(), -1
	if lost := (*transport.LostError)(nil); errors.As(cause, &lost) {
		with = lost.Rank
	}
	s.rec.Add(&record.Event{
		Kind: record.Fault, Name: s.rec.Name(cause.Error()), Group: s.group, Seq: cause.Seq, Bucket: -1, Other: int32(with), Peer: int32(cause.Peer), Sent: -1, Begun: now, Done: now,
	})
}
