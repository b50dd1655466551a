// Package record is what a process writes down of what it does: each operation, phase, fault and change once, where it
// happens, as one [Event] of a fixed size, for any number of readers, such as timelines (package trace).
//
//	rec := record.New(record.Config{})         // of this process; a job has one, ringo.Job.Recorder
//	bucket := rec.Name("bucket 3 (fc.bias)")   // once: events hold a number in the place of a text
//
//	op := rec.Begin(&record.Event{Kind: record.Operation, Name: allreduce, Seq: 17, Label: bucket, Begun: rec.Now()})
//	op.Wait().For(2, rec.Now())                // meanwhile: it waits for rank 2
//	op.End(rec.Now(), sent, false)             // now readers get it
//	rec.Span(record.Update, bucket, begun, done) // something that has ended
//
//	reader := rec.Follow()
//	for range reader.Ready() {
//		n, missed := reader.Next(events[:])
//		…
//	}
//
// The events lie in memory of a fixed size, laid out as docs/formats/record.md says, in two rings:
// one of the last operations, messages, requests, faults and changes, which are few and tell why a
// job fails, and one of the last phases and steps. Beside them is a table of what has begun and not
// ended, so that what never ends is not pushed out by what does, and a [OpRing] for the short
// operations of each group. The memory may be a file that another process holds ([Create], [Map]),
// as a launcher does for each process of a job: then it outlives the process however that ends, and
// [Read] and [Decode] read it, also while the process records.
//
// Cost, on a core of an EPYC at 13 ns for a lock that nobody holds: 24 ns for an event, 50 ns for one from its beginning to its end,
// 10 ns for one in a lane, and 30 ns for each look at the clock. Nothing is allocated. A nil *Recorder records nothing.
package record

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of Config's zero values: 1.6 MiB, of which what is used takes memory.
const (
	DefaultOperations = 1024
	DefaultPhases     = 4096
	DefaultOpen       = 512
	DefaultLanes      = 8
	DefaultNames      = 256 << 10
)

// Config says how much a Recorder keeps.
type Config struct {
	// Operations is how many events that are no phases or steps are kept, a power of two. 0: 1024.
	Operations int
	// Phases is how many phases and steps are kept, a power of two. 0: 4096.
	Phases int
	// Open is how many events may have begun and not ended. What begins beyond is counted, and not recorded. 0: 512.
	Open int
	// Lanes is how many groups' short operations have a ring of Operations events of their own, see
	// OpRing. 0: 8.
	Lanes int
	// Names is how many bytes there are for names, of which each takes two more than its length. 0: 256 KiB. What has no
	// more room is called "".
	Names int
	// Epoch is when the recorder's clock is 0. The zero time: when it is made.
	Epoch time.Time
}

// filled returns c with zero values replaced by what they stand for.
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

// maxKept bounds what a Recorder keeps of each, and what Decode believes; maxBytes all of it: a hundred times what is usual.
const (
	maxKept  = 1 << 20
	maxLanes = 64
	maxBytes = 256 << 20
)

// Validate reports every fault of c at once.
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

// Recorder is one process's. Its methods may be called from any goroutine, and on nil, which does nothing.
type Recorder struct {
	memory
	epoch time.Time
	step  atomic.Int64
	unmap func() error
	file  string // "": it lies in none of its own

	names names
	rests atomic.Bool // see SetPaused

	mu      sync.Mutex // of the rings and the table
	free    []int32    // of the table
	begun   uint64     // how many events have had a place in it
	readers []*Reader

	laneMu sync.Mutex // of who has which lane; taken before the lanes' own locks
	lanes  []*OpRing
}

// New makes a Recorder in memory that ends with this process. It panics if cfg is not valid.
func New(cfg Config) *Recorder {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	cfg = cfg.filled()
	return start(newMemory(cfg, make([]uint64, cfg.words())), cfg)
}

// start begins to record in empty memory.
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

// Release lets another Recorder of this process have the memory, which Map has mapped. Nothing may be recorded any more, and what was is
// to be read until then.
func (r *Recorder) Release() {
	if r != nil {
		atomic.StoreUint64(&r.head[headHeld], 0)
	}
}

// Close gives mapped memory back. Nothing may be recorded or read any more.
func (r *Recorder) Close() error {
	if r == nil || r.unmap == nil {
		return nil
	}
	r.Release()
	return r.unmap()
}

// File is the path of the file in which it lies, as InFile has made it; "": none.
func (r *Recorder) File() string {
	if r == nil {
		return ""
	}
	return r.file
}

// Identity is a process of a job.
type Identity struct {
	Role   Role
	Number int // in its role, but of an AggregationServer among all who are in the mesh
}

// Role is what a process is in a job.
type Role uint8

// The roles.
const (
	NoRole            Role = iota // nobody said
	Rank                          // it trains
	AggregationServer             // it sums gradients
	ParameterServer               // it keeps parameters
)

// SetPaused has the recorder record nothing that begins from now on, or record again: to measure
// what recording costs. What has begun ends.
func (r *Recorder) SetPaused(on bool) {
	if r != nil {
		r.rests.Store(on)
	}
}

// SetProcess says what the process is, for those who find its memory.
func (r *Recorder) SetProcess(who Identity) {
	if r != nil {
		atomic.StoreUint64(&r.head[headWho], uint64(uint32(who.Number))|uint64(who.Role)<<32)
	}
}

// Now is the time by the recorder's clock: nanoseconds since it was made, which never jump. 0 without a recorder.
func (r *Recorder) Now() int64 {
	if r == nil {
		return 0
	}
	return int64(time.Since(r.epoch))
}

// At is the time t by the recorder's clock.
func (r *Recorder) At(t time.Time) int64 {
	if r == nil {
		return 0
	}
	return int64(t.Sub(r.epoch))
}

// Time is what the clock said at a time of the recorder's.
func (r *Recorder) Time(at int64) time.Time {
	if r == nil {
		return time.Time{}
	}
	return r.epoch.Add(time.Duration(at))
}

// BeginStep says that the events which follow are of this step; -1: of none.
func (r *Recorder) BeginStep(step int64) {
	if r != nil {
		r.step.Store(step)
		atomic.StoreUint64(&r.head[headStep], uint64(step))
	}
}

// Step is the step under way, -1 before the first.
func (r *Recorder) Step() int64 {
	if r == nil {
		return -1
	}
	return r.step.Load()
}

// stepOf is the step of an event: that under way, unless it is a request, which says so itself.
func (r *Recorder) stepOf(e *Event) int64 {
	if e.Kind == Request {
		return e.Step
	}
	return r.step.Load()
}

// BeginPhase records that a phase begins, at a time of the recorder's clock. See Begin.
func (r *Recorder) BeginPhase(p Phase, now int64) Op {
	return r.Begin(&Event{Kind: PhaseKind, Phase: p, Bucket: -1, Other: -1, Peer: -1, Sent: -1, Begun: now})
}

// Add records an event that has ended. Its step is that under way, but for requests.
func (r *Recorder) Add(e *Event) {
	if r == nil || r.rests.Load() {
		return
	}
	e.Step = r.stepOf(e)
	r.mu.Lock()
	r.append(e)
	r.mu.Unlock()
}

// Span records a phase that went on from begun to done, by the recorder's clock.
func (r *Recorder) Span(p Phase, name Name, begun, done int64) {
	if r == nil {
		return
	}
	r.Add(&Event{Kind: PhaseKind, Phase: p, Name: name, Bucket: -1, Peer: -1, Other: -1, Sent: -1, Begun: begun, Done: max(begun, done)})
}

// append puts an event into its ring. r.mu is held.
func (r *Recorder) append(e *Event) {
	g := r.ring(e.Kind)
	n := *g.count
	g.slot(n).put(e, n+1)
	*g.count = n + 1
	r.wakeReaders(g, e.Kind == Fault)
}

// ring is where events of a kind go.
func (r *Recorder) ring(k Kind) *ring {
	if k.common() {
		return &r.phases
	}
	return &r.operations
}

// wakeReaders wakes those who follow a ring when it is time. r.mu is held.
func (r *Recorder) wakeReaders(g *ring, now bool) {
	if now || *g.count&(g.quarter-1) == 0 {
		for _, reader := range r.readers {
			reader.wake()
		}
	}
}

// Begin records that an event begins: it is seen to be under way, and gets into its ring when it ends. Its step is that
// under way, but for requests; its Bucket, Peer and Other are -1 where they are none.
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

// Op is an event that has begun. The zero value is one that nobody records.
type Op struct {
	at    *slot
	r     *Recorder // nil: it is in a lane
	place int32     // in the table
}

// Recorded says that it is recorded that the event has begun.
func (o Op) Recorded() bool { return o.at != nil }

// Wait is where the operation says for whom it waits; nil where nobody would see it.
func (o Op) Wait() *Waiting {
	if o.at == nil {
		return nil
	}
	return o.at.wait()
}

// End records that the event has ended: when, having sent so many bytes, and whether it has failed. It is called
// once. Of one that has failed Peer stays whom it waited for then. Of one in a lane its lock is held, and done may be Unknown.
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

// Open appends what has begun and not ended to dst, in no order.
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

// Recent appends the last operations, at most n, that the ring of operations holds to dst, the oldest first, and behind them as many of
// each lane.
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
