package record

import (
	"sync/atomic"
	"unsafe"
)

// The layout of a Recorder's memory, in 64-bit words of the machine's byte order, little-endian on
// all supported systems; docs/formats/record.md documents the layout for other readers.
//
//	head        16 words
//	open        Open slots      what has begun and not ended
//	operations  Operations slots, ring
//	phases      Phases slots, ring
//	lanes       Lanes times Operations slots, a ring each
//	names       Names bytes
//
// A slot is an event in 12 words. The first, the stamp, is 0 for an empty or partly written slot,
// so that a process killed while writing leaves no false event; else the number in the ring plus 1.
const (
	magic   = 0x4345524f474e4952 // "RINGOREC"
	version = 2

	headWords = 16
	slotWords = 12
)

// Magic is the first bytes of a Recorder's memory with a record.
const Magic = "RINGOREC"

// Words of the head.
const (
	headMagic = iota // written last
	headVersion
	headOperations // number of slots
	headPhases
	headOpen
	headNames        // bytes
	headEpoch        // time at which the clock was 0, in nanoseconds since 1970
	headProcess      // process number
	headStep         // current step
	headOperationsAt // events ever written to the ring
	headPhasesAt
	headNamesAt // bytes in use
	headUnseen  // events that began while the table was full
	headLanes   // number of lanes
	headHeld    // number of the recording process, 0: none
	headWho     // process's Identity
)

// memory is a Recorder's memory, divided into its parts.
type memory struct {
	head       []uint64
	open       ring
	operations ring
	phases     ring
	lanes      []ring
	text       []byte
}

// ring is a sequence of slots: a ring, or the table of events in progress.
type ring struct {
	words   []uint64
	places  int
	count   *uint64 // events ever written; nil for a lane or the table
	lane    bool
	quarter uint64 // readers are woken after this number of events
}

// slot is an event's words.
type slot [slotWords]uint64

// words returns the number of words of a Recorder of the complete c.
func (c Config) words() int {
	return headWords + slotWords*(c.Open+c.Operations*(1+c.Lanes)+c.Phases) + c.Names/8
}

// Bytes returns the size of a Recorder's memory.
func (c Config) Bytes() int { return 8 * c.filled().words() }

// newMemory divides words into parts and writes the head. cfg is complete.
func newMemory(cfg Config, words []uint64) memory {
	m := cut(cfg, words)
	for i, v := range map[int]int{headVersion: version, headOperations: cfg.Operations, headPhases: cfg.Phases, headOpen: cfg.Open, headLanes: cfg.Lanes, headNames: cfg.Names} {
		m.head[i] = uint64(v)
	}
	return m
}

func cut(cfg Config, words []uint64) memory {
	take := func(n int) []uint64 {
		part := words[:n:n]
		words = words[n:]
		return part
	}
	m := memory{head: take(headWords)}
	m.open = ring{words: take(slotWords * cfg.Open), places: cfg.Open}
	m.operations = newRing(take(slotWords*cfg.Operations), cfg.Operations, &m.head[headOperationsAt])
	m.phases = newRing(take(slotWords*cfg.Phases), cfg.Phases, &m.head[headPhasesAt])
	for range cfg.Lanes {
		lane := newRing(take(slotWords*cfg.Operations), cfg.Operations, nil)
		lane.lane = true
		m.lanes = append(m.lanes, lane)
	}
	if names := take(cfg.Names / 8); len(names) > 0 {
		m.text = unsafe.Slice((*byte)(unsafe.Pointer(&names[0])), 8*len(names))
	}
	return m
}

func newRing(words []uint64, places int, count *uint64) ring {
	return ring{words: words, places: places, count: count, quarter: uint64(max(1, places/4))}
}

func (g *ring) slot(n uint64) *slot { return g.place(int(n & uint64(g.places-1))) }

func (g *ring) place(i int) *slot { return (*slot)(g.words[slotWords*i:]) }

func (m *memory) table(place int32) *slot { return m.open.place(int(place)) }

func (s *slot) stamp() *uint64 { return &s[0] }

// Words of a slot after the stamp.
const (
	slotKind = 1 + iota // 16 bits each: kind, phase, failed; name, algorithm
	slotStep
	slotSeq    // 32 bits each: seq, group
	slotBucket // 32 bits: bucket; 16 bits each: label, with + 1
	slotSize
	slotSent
	slotSig
	slotBegun
	slotDone
	slotPeer // + 1
	slotSince
)

// put writes an event under the lock. Readers of a killed process rely on the stamp.
func (s *slot) put(e *Event, stamp uint64) {
	s[0] = 0
	s.fill(e)
	atomic.StoreUint64(&s[0], stamp)
}

// fill writes all words except the stamp. It is not inlined: its stores precede the stamp's.
//
//go:noinline
func (s *slot) fill(e *Event) {
	failed := uint64(0)
	if e.Failed {
		failed = 1
	}
	s[slotKind] = uint64(e.Kind) | uint64(e.Phase)<<8 | failed<<16 | uint64(e.Name)<<32 | uint64(e.Algorithm)<<48
	s[slotStep] = uint64(e.Step)
	s[slotSeq] = uint64(e.Seq) | uint64(e.Group)<<32
	s[slotBucket] = uint64(uint32(e.Bucket)) | uint64(e.Label)<<32 | uint64(uint16(e.Other+1))<<48
	s[slotSize], s[slotSent], s[slotSig] = uint64(e.Size), uint64(e.Sent), e.Sig
	s[slotBegun], s[slotDone] = uint64(e.Begun), uint64(e.Done)
	s[slotPeer], s[slotSince] = uint64(e.Peer+1), uint64(e.Since)
}

// end writes the ended event of the slot from into s.
func (s *slot) end(from *slot, done, sent int64, failed bool, stamp uint64) {
	s[0] = 0
	copy(s[slotKind:slotPeer], from[slotKind:slotPeer])
	s[slotSent], s[slotDone] = uint64(sent), uint64(done)
	s[slotPeer], s[slotSince] = 0, 0
	if failed {
		s[slotKind] |= 1 << 16
		w := from.wait()
		s[slotPeer], s[slotSince] = w.peer.Load(), w.since.Load()
	}
	atomic.StoreUint64(&s[0], stamp)
	from[0] = 0
}

// get reads an event. The Recorder's lock is held.
func (s *slot) get() Event {
	w := s.wait()
	return Event{
		Kind: Kind(s[slotKind]), Phase: Phase(s[slotKind] >> 8), Failed: s[slotKind]>>16&1 == 1,
		Name: Name(s[slotKind] >> 32), Algorithm: Name(s[slotKind] >> 48),
		Step: int64(s[slotStep]), Seq: uint32(s[slotSeq]), Group: uint32(s[slotSeq] >> 32),
		Bucket: int32(s[slotBucket]), Label: Name(s[slotBucket] >> 32), Other: int32(s[slotBucket]>>48) - 1,
		Size: int64(s[slotSize]), Sent: int64(s[slotSent]), Sig: s[slotSig],
		Begun: int64(s[slotBegun]), Done: int64(s[slotDone]),
		Peer: int32(w.peer.Load()) - 1, Since: int64(w.since.Load()),
	}
}

// Waiting is the awaited peer of an event. A single goroutine writes, and others may read: between
// the two stores a reader may see the new peer with the previous time.
type Waiting struct{ peer, since atomic.Uint64 }

func (s *slot) wait() *Waiting { return (*Waiting)(unsafe.Pointer(&s[slotPeer])) }

// For records a wait for a peer since a time.
func (w *Waiting) For(peer int, since int64) {
	w.since.Store(uint64(since))
	w.peer.Store(uint64(peer) + 1)
}

// Continue records a wait for a peer since the time of the last wait.
func (w *Waiting) Continue(peer int) { w.peer.Store(uint64(peer) + 1) }

// Clear records the end of the wait. A nil Waiting is ignored.
func (w *Waiting) Clear() {
	if w != nil {
		w.peer.Store(0)
	}
}

// Start sets the time used by Continue.
func (w *Waiting) Start(since int64) { w.since.Store(uint64(since)) }

// Load returns the awaited peer, or -1, and the start of the wait.
func (w *Waiting) Load() (peer int, since int64) {
	return int(w.peer.Load()) - 1, int64(w.since.Load())
}
