package collective

import (
	"errors"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/transport"
)

// opRecorder records a group's operations.
//
// An operation is recorded when it gets its number, which is when its caller starts it, and not when a worker takes it: a rank
// whose operation is queued has begun it as far as the others are concerned. Until it ends, Work.waits points to where its record
// says for whom it waits. That place is another's as soon as the operation has ended, so that both happen under the group's lock,
// which who looks at waits holds, too.
//
// Cost: of a short operation through shared memory, which takes 200 ns, 10 ns: it is written in the group's lane, and nobody looks at
// the clock unless it waits for long. Of others 50 ns and two looks at the clock.
type opRecorder struct {
	rec    *record.Recorder
	lane   *record.OpRing // its lock is the group's; nil: there was none left
	group  uint32
	kinds  [kinds]record.Name
	hows   [methods]record.Name
	bucket atomic.Uint64 // that is being started: its number plus one, above its name
	like   likeness      // what draft is of
	draft  record.Draft
}

// likeness is what two operations have in common whose records differ in their numbers alone.
type likeness struct {
	sig    signature
	kind   kind
	root   int
	bytes  int
	bucket uint64
}

// shortBytes is from where on an operation takes so long that looking at the clock is nothing to it.
const shortBytes = 64 << 10

// ownRecord is what a group records in where it is not told: as much as Begun needs.
var ownRecord = record.Config{Operations: 2 * begun, Phases: begun, Open: 2 * maxInFlight, Lanes: 1, Names: 2 << 10}

// attend makes the group's scribe.
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

// Recorder is where the group's operations are recorded.
func (g *Group) Recorder() *record.Recorder { return g.scribe.rec }

// For says that the operations which are started from now on are a bucket's, until it is said otherwise: its number in the plan, and
// what the group's recorder calls it; -1: of none. Only who starts all operations of a group can say so.
func (g *Group) For(bucket int, label record.Name) {
	g.scribe.bucket.Store(uint64(bucket+1)<<16 | uint64(label))
}

// begin records that w begins, unless this rank is the only one. Its caller waits for it, or not. g.mu is held, so that its number
// is not another's before.
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

// event is what is recorded when w begins, without the time.
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

// look notes the time, from which w waits. If it is in the lane nobody has asked for it yet.
func (s *opRecorder) look(w *Work) {
	now := s.rec.Now()
	if !w.hasStart {
		w.begun, w.hasStart = now, true
	}
	w.waits.Start(now)
}

// stop looks at the clock at the end of w, if that was done before.
func (s *opRecorder) stop(w *Work) {
	w.end = record.Unknown
	if w.hasStart {
		w.end = s.rec.Now()
	}
}

// ended records that w has ended, if it has begun. g.mu is held: nobody looks at w.waits any more when another may
// have its place.
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

// leave gives the lane back, once: another group may have it now. g.mu is held.
func (s *opRecorder) leave() {
	s.lane.Free()
	s.lane = nil
}

// fault records what has broken the group, and which rank is lost by what it says.
func (s *opRecorder) fault(cause *OpError) {
	now, with := s.rec.Now(), -1
	if lost := (*transport.LostError)(nil); errors.As(cause, &lost) {
		with = lost.Rank
	}
	s.rec.Add(&record.Event{
		Kind: record.Fault, Name: s.rec.Name(cause.Error()), Group: s.group, Seq: cause.Seq, Bucket: -1, Other: int32(with), Peer: int32(cause.Peer), Sent: -1, Begun: now, Done: now,
	})
}
