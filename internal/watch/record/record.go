// Package record is a flight recorder: a process records each operation, phase, error and change
// once, as a fixed-size [Event]. Any number of readers can follow, such as package trace.
//
//	rec := record.New(record.Config{})       // a job has its own: ringo.Job.Recorder
//	bucket := rec.Name("bucket 3 (fc.bias)") // once: events hold the number of a text
//
//	op := rec.Begin(&record.Event{
//		Kind: record.Operation, Name: allreduce, Seq: 17, Label: bucket, Begun: rec.Now(),
//	})
//	op.Wait().For(2, rec.Now())                  // waits for rank 2
//	op.End(rec.Now(), sent, false)               // readers get the event
//	rec.Span(record.Update, bucket, begun, done) // a phase that has ended
//
//	reader := rec.Follow()
//	for range reader.Ready() {
//		n, missed := reader.Next(events[:])
//		…
//	}
//
// The events are in memory of a fixed size, laid out as in docs/formats/record.md, in two rings:
// one for the last operations, messages, requests, faults and changes, which are rare and explain
// failures, and one for the last phases and steps. A table holds the events in progress, so that
// ended events never displace them, and an [OpRing] the short operations of each group. The memory
// may be a file held by another process ([Create], [Map]), as by a launcher: the memory then
// survives the process. [Read] and [Decode] read the memory, also while the process records.
//
// Cost, on an EPYC core with 13 ns for an uncontended lock: 24 ns for an event, 50 ns for an event
// with begin and end, 10 ns for an event in a lane, and 30 ns per clock reading. Recording
// allocates no memory. A nil *Recorder records no events.
package record

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of Config's zero values: 1.6 MiB, occupying memory only as used.
const (
	DefaultOperations = 1024
	DefaultPhases     = 4096
	DefaultOpen       = 512
	DefaultLanes      = 8
	DefaultNames      = 256 << 10
)

// Config sets the sizes of a Recorder.
type Config struct {
	// Operations limits the kept events other than phases and steps, a power of two. 0 means 1024.
	Operations int
	// Phases is the number of kept phases and steps, a power of two. 0 means 4096.
	Phases int
	// Open is the maximum of events in progress; more are only counted. 0 means 512.
	Open int
	// Lanes is the number of groups with a ring of Operations short operations (OpRing). 0 means 8.
	Lanes int
	// Names is the number of bytes for names; each name needs two more bytes than its length. 0
	// means 256 KiB. Names without space become "".
	Names int
	// Epoch is the time when the recorder's clock is 0. The zero time means its creation.
	Epoch time.Time
}

// filled returns c with defaults for zero values.
func (c Config) filled() Config {
	for _, v := range []struct {
		at    *int
		value int
	}{{&c.Operations, DefaultOperations}, {&c.Phases, DefaultPhases}, {&c.Open, DefaultOpen}, {&c.Lanes, DefaultLanes}, {&c.Names, DefaultNames}} {
		if *v.at == 0 {
			*v.at = v.value
		}
	}
	c.Names = (c.Names + 7) &^ 7
	return c
}

// maxKept limits each size of a Recorder, and the sizes accepted by Decode; maxBytes limits the
// total size: a hundred times the default.
const (
	maxKept  = 1 << 20
	maxLanes = 64
	maxBytes = 256 << 20
)

// Validate returns all errors of c.
func (c Config) Validate() error {
	var errs []error
	check := func(what string, n int, power bool) {
		if n < 0 || n > maxKept || power && n&(n-1) != 0 {
			errs = append(errs, fmt.Errorf("record: %d %s: want at most %d, a power of two where it is a ring, or 0 for the default", n, what, maxKept))
		}
	}
	check("operations", c.Operations, true)
	check("phases", c.Phases, true)
	check("open events", c.Open, false)
	if c.Lanes < 0 || c.Lanes > maxLanes {
		errs = append(errs, fmt.Errorf("record: %d lanes: want at most %d, or 0 for the default", c.Lanes, maxLanes))
	}
	check("bytes of names", c.Names, false)
	if len(errs) == 0 && c.Bytes() > maxBytes {
		errs = append(errs, fmt.Errorf("record: all of it takes %d bytes: want at most %d", c.Bytes(), maxBytes))
	}
	return errors.Join(errs...)
}

// Recorder records for a process. Safe for concurrent use; nil does no work.
type Recorder struct {
	memory
	epoch time.Time
	step  atomic.Int64
	unmap func() error
	file  string // path from InFile, or ""

	names names
	rests atomic.Bool // set by SetPaused

	mu      sync.Mutex // guards the rings and the table
	free    []int32    // free slots of the table
	begun   uint64     // events that have had a slot in the table
	readers []*Reader

	laneMu sync.Mutex // guards the use of lanes; taken before the lanes' own locks
	lanes  []*OpRing
}

// New returns a Recorder in memory of this process. New panics if cfg is invalid.
func New(cfg Config) *Recorder {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	cfg = cfg.filled()
	return start(newMemory(cfg, make([]uint64, cfg.words())), cfg)
}

// start starts recording in empty memory.
func start(m memory, cfg Config) *Recorder {
	r := &Recorder{memory: m, epoch: cfg.Epoch}
	if r.epoch.IsZero() {
		r.epoch = time.Now()
	}
	r.names.known = map[string]Name{"": 0}
	for i := range cfg.Open {
		r.free = append(r.free, int32(cfg.Open-1-i))
	}
	for i := range r.memory.lanes {
		r.lanes = append(r.lanes, &OpRing{r: r, ring: &r.memory.lanes[i]})
	}
	r.head[headEpoch] = uint64(r.epoch.UnixNano())
	r.head[headProcess] = uint64(os.Getpid())
	r.BeginStep(-1)
	atomic.StoreUint64(&r.head[headMagic], magic)
	return r
}

// Release releases the memory from Map for another Recorder of this process. Read the record before
// Release; recording must have ended.
func (r *Recorder) Release() {
	if r != nil {
		atomic.StoreUint64(&r.head[headHeld], 0)
	}
}

// Close unmaps the memory. Recording and reading must have ended.
func (r *Recorder) Close() error {
	if r == nil || r.unmap == nil {
		return nil
	}
	r.Release()
	return r.unmap()
}

// File returns the path of the file from InFile, or "".
func (r *Recorder) File() string {
	if r == nil {
		return ""
	}
	return r.file
}

// Identity is a process's role and number in a job.
type Identity struct {
	Role   Role
	Number int // number in the role; for an AggregationServer the number in the mesh
}

// Role is the role of a process in a job.
type Role uint8

// Values of Role.
const (
	NoRole            Role = iota // unknown
	Rank                          // training rank
	AggregationServer             // server that sums gradients
	ParameterServer               // server with parameters
)

// SetPaused pauses or resumes recording, to measure its cost. Events in progress still end.
func (r *Recorder) SetPaused(on bool) {
	if r != nil {
		r.rests.Store(on)
	}
}

// SetProcess records the identity of the process, for readers of the memory.
func (r *Recorder) SetProcess(who Identity) {
	if r != nil {
		atomic.StoreUint64(&r.head[headWho], uint64(uint32(who.Number))|uint64(who.Role)<<32)
	}
}

// Now returns the recorder's clock: nanoseconds since its epoch, monotonic; 0 for nil.
func (r *Recorder) Now() int64 {
	if r == nil {
		return 0
	}
	return int64(time.Since(r.epoch))
}

// At returns t in the recorder's clock.
func (r *Recorder) At(t time.Time) int64 {
	if r == nil {
		return 0
	}
	return int64(t.Sub(r.epoch))
}

// Time returns the wall time of a time of the recorder's clock.
func (r *Recorder) Time(at int64) time.Time {
	if r == nil {
		return time.Time{}
	}
	return r.epoch.Add(time.Duration(at))
}

// BeginStep sets the step of the following events; -1 means none.
func (r *Recorder) BeginStep(step int64) {
	if r != nil {
		r.step.Store(step)
		atomic.StoreUint64(&r.head[headStep], uint64(step))
	}
}

// Step returns the current step, -1 before the first.
func (r *Recorder) Step() int64 {
	if r == nil {
		return -1
	}
	return r.step.Load()
}

// stepOf returns the step of an event: the current step, or the step in a Request.
func (r *Recorder) stepOf(e *Event) int64 {
	if e.Kind == Request {
		return e.Step
	}
	return r.step.Load()
}

// BeginPhase records the begin of a phase, at a time of the recorder's clock. See Begin.
func (r *Recorder) BeginPhase(p Phase, now int64) Op {
	return r.Begin(&Event{Kind: PhaseKind, Phase: p, Bucket: -1, Other: -1, Peer: -1, Sent: -1, Begun: now})
}

// Add records an ended event. Add sets the event's step to the current step, except for requests.
func (r *Recorder) Add(e *Event) {
	if r == nil || r.rests.Load() {
		return
	}
	e.Step = r.stepOf(e)
	r.mu.Lock()
	r.append(e)
	r.mu.Unlock()
}

// Span records a phase from begun to done, in the recorder's clock.
func (r *Recorder) Span(p Phase, name Name, begun, done int64) {
	if r == nil {
		return
	}
	r.Add(&Event{Kind: PhaseKind, Phase: p, Name: name, Bucket: -1, Peer: -1, Other: -1, Sent: -1, Begun: begun, Done: max(begun, done)})
}

// append writes an event to its ring. r.mu is held.
func (r *Recorder) append(e *Event) {
	g := r.ring(e.Kind)
	n := *g.count
	g.slot(n).put(e, n+1)
	*g.count = n + 1
	r.wakeReaders(g, e.Kind == Fault)
}

func (r *Recorder) ring(k Kind) *ring {
	if k.common() {
		return &r.phases
	}
	return &r.operations
}

// wakeReaders wakes the readers of a ring if due. r.mu is held.
func (r *Recorder) wakeReaders(g *ring, now bool) {
	if now || *g.count&(g.quarter-1) == 0 {
		for _, reader := range r.readers {
			reader.wake()
		}
	}
}

// Begin records the begin of an event. The event moves from the table to its ring at the end. Begin
// sets its step to the current one, except for requests. Bucket, Peer and Other are -1 for none.
func (r *Recorder) Begin(e *Event) Op {
	if r == nil || r.rests.Load() {
		return Op{}
	}
	e.Step = r.stepOf(e)
	r.mu.Lock()
	r.begun++
	var op Op
	if last := len(r.free) - 1; last >= 0 {
		op.r, op.place, r.free = r, r.free[last], r.free[:last]
		op.at = r.table(op.place)
		op.at.put(e, r.begun)
	} else {
		r.head[headUnseen]++
	}
	r.mu.Unlock()
	return op
}

// Op is an event in progress. The zero value is an unrecorded event.
type Op struct {
	at    *slot
	r     *Recorder // nil for an event in a lane
	place int32     // slot in the table
}

// Recorded reports whether the begin of the event was recorded.
func (o Op) Recorded() bool { return o.at != nil }

// Wait returns the event's awaited peer, to be updated; nil for an unrecorded event.
func (o Op) Wait() *Waiting {
	if o.at == nil {
		return nil
	}
	return o.at.wait()
}

// End records the end of the event: the time, the bytes sent and whether it failed. End is called
// once. Peer of a failed event shows which peer it awaited. For an event of a lane (Recorder.Lane)
// the caller holds the lane's lock, and done may be Unknown.
func (o Op) End(done, sent int64, failed bool) {
	if o.at == nil {
		return
	}
	if o.r == nil {
		o.at.endHere(done, sent, failed)
		return
	}
	r := o.r
	r.mu.Lock()
	g := r.ring(Kind(o.at[slotKind]))
	n := *g.count
	g.slot(n).end(o.at, done, sent, failed, n+1)
	*g.count = n + 1
	r.free = append(r.free, o.place)
	r.wakeReaders(g, false)
	r.mu.Unlock()
}

// Open appends the events in progress to dst, unordered.
func (r *Recorder) Open(dst []Event) []Event {
	if r == nil {
		return dst
	}
	r.mu.Lock()
	for i := range r.open.places {
		if s := r.table(int32(i)); *s.stamp() != 0 {
			dst = append(dst, s.get())
		}
	}
	r.mu.Unlock()
	r.eachLane(func(l *OpRing) { dst = l.open(dst) })
	return dst
}

// Recent appends the last n operations in the ring to dst, oldest first, and n of each lane.
func (r *Recorder) Recent(dst []Event, n int) []Event {
	if r == nil {
		return dst
	}
	r.mu.Lock()
	g := &r.operations
	last := *g.count
	for at := last - min(last, uint64(n), uint64(g.places)); at < last; at++ {
		dst = append(dst, g.slot(at).get())
	}
	r.mu.Unlock()
	r.eachLane(func(l *OpRing) { dst = l.recent(dst, n) })
	return dst
}
