package record

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"
	"unsafe"
)

// Snapshot is the contents of a Recorder at a time, possibly of an ended process.
type Snapshot struct {
	Epoch    time.Time // time at which the clock was 0
	Process  int       // process number
	Identity Identity  // role in the job
	Active   bool      // the process is still recording
	Step     int64     // current step, -1 before the first
	// Open are the events in progress, oldest first. Dropped counts events that were not recorded
	// because the table of events in progress was full.
	Open    []Event
	Dropped uint64
	// Operations and Phases are the last ended events, and OperationsEnded and PhasesEnded their
	// total numbers. Operations of lanes (OpRing) come last, and are not in the total.
	Operations, Phases           []Event
	OperationsEnded, PhasesEnded uint64

	names []string
}

// Text returns the text of a number, or "" for an unknown number.
func (s *Snapshot) Text(id Name) string {
	if id == 0 || int(id) > len(s.names) {
		return ""
	}
	return s.names[id-1]
}

// Snapshot returns the Recorder's contents; nil for a nil Recorder.
func (r *Recorder) Snapshot() *Snapshot {
	if r == nil {
		return nil
	}
	r.names.mu.Lock()
	names := slices.Clone(r.names.list)
	r.names.mu.Unlock()
	r.mu.Lock()
	s := r.snapshot()
	r.mu.Unlock()
	s.names = names
	r.eachLane(func(l *OpRing) { s.Operations, s.Open = l.recent(s.Operations, l.ring.places), l.open(s.Open) })
	s.order()
	return s
}

func (s *Snapshot) order() {
	since := func(e Event) int64 { return cmp.Or(e.Begun, e.Since) }
	slices.SortStableFunc(s.Open, func(a, b Event) int { return cmp.Compare(since(a), since(b)) })
}

// outline returns a Snapshot of the head, without events.
func (m *memory) outline() *Snapshot {
	return &Snapshot{
		Epoch: time.Unix(0, int64(m.head[headEpoch])), Process: int(m.head[headProcess]), Step: int64(m.head[headStep]),
		Identity: Identity{Role: Role(m.head[headWho] >> 32), Number: int(uint32(m.head[headWho]))}, Active: m.head[headHeld] != 0,
		Dropped: m.head[headUnseen], OperationsEnded: *m.operations.count, PhasesEnded: *m.phases.count,
	}
}

// headed parses a head: ok is false for memory without a record, or, with an error, for other data.
func headed(head []uint64) (cfg Config, ok bool, err error) {
	switch {
	case head[headMagic] == 0:
		return cfg, false, nil
	case head[headMagic] != magic:
		return cfg, false, fmt.Errorf("record: at byte 0: %#x is not the mark of a recorder", head[headMagic])
	case head[headVersion] != version:
		return cfg, false, fmt.Errorf("record: at byte 8: version %d, this program reads %d", head[headVersion], version)
	}
	cfg, err = configOf(head)
	return cfg, err == nil, err
}

// snapshot reads all parts except lanes and names.
func (m *memory) snapshot() *Snapshot {
	s := m.outline()
	for _, i := range m.open.going() {
		s.Open = append(s.Open, m.open.place(i).get())
	}
	s.Operations, s.Phases = m.operations.last(), m.phases.last()
	return s
}

// last returns the events in a ring, except partly written ones.
func (g *ring) last() (out []Event) {
	end := *g.count
	for n := end - min(end, uint64(g.places)); n < end; n++ {
		if at := g.slot(n); *at.stamp() == n+1 {
			out = append(out, at.get())
		}
	}
	return out
}

// Decode reads the memory of a Recorder, for example a launcher's memory of a killed process.
// Decode trusts no data: b may be damaged, or of another program. A partly written event is left
// out. For memory without a record Decode returns nil and no error.
func Decode(b []byte) (*Snapshot, error) { return decodeLive(b, nil) }

// decodeLive is Decode for memory that a process may have written during the copy. again, if not
// nil, is a later copy: events with another stamp in again are left out, like partly written ones.
func decodeLive(b, again []byte) (*Snapshot, error) {
	if len(b) < 8*headWords {
		return nil, fmt.Errorf("record: %d bytes are too few: want %d for a head alone", len(b), 8*headWords)
	}
	words := aligned(b)
	cfg, ok, err := headed(words)
	if !ok {
		return nil, err
	}
	if want := 8 * cfg.words(); len(b) != want {
		return nil, fmt.Errorf("record: %d bytes, its head says %d", len(b), want)
	}
	m := cut(cfg, words)
	if len(again) == len(b) {
		m.leaveOut(cut(cfg, aligned(again)))
	}
	s := m.snapshot()
	for i := range m.lanes {
		s.Operations, s.Open = m.lanes[i].all(s.Operations, s.Open)
	}
	s.order()
	s.names, err = decodeNames(m.text, words[headNamesAt])
	return s, err
}

// aligned returns a private copy of b in words.
func aligned(b []byte) []uint64 {
	words := make([]uint64, len(b)/8)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words)), b)
	return words
}

func (m *memory) rings() []ring { return append([]ring{m.open, m.operations, m.phases}, m.lanes...) }

// leaveOut removes the events of m that have another stamp in later, a copy made after m.
func (m *memory) leaveOut(later memory) {
	rings := later.rings()
	for i, g := range m.rings() {
		for at := range g.places {
			if s := g.place(at); s[0] != rings[i].place(at)[0] {
				s[0] = 0
			}
		}
	}
}

func configOf(words []uint64) (Config, error) {
	var cfg Config
	for i, at := range map[int]*int{headOperations: &cfg.Operations, headPhases: &cfg.Phases, headOpen: &cfg.Open, headLanes: &cfg.Lanes, headNames: &cfg.Names} {
		limit := uint64(maxKept)
		if i == headLanes {
			limit = maxLanes
		}
		if n := words[i]; n == 0 || n > limit {
			return cfg, fmt.Errorf("record: at byte %d: a size of %d: want 1 to %d", 8*i, n, limit)
		}
		*at = int(words[i])
	}
	if cfg.Names%8 != 0 {
		return cfg, fmt.Errorf("record: at byte %d: %d bytes of names: want a multiple of 8", 8*headNames, cfg.Names)
	}
	return cfg, cfg.Validate()
}

func decodeNames(text []byte, used uint64) (out []string, err error) {
	if used > uint64(len(text)) {
		return nil, fmt.Errorf("record: %d bytes of names in %d", used, len(text))
	}
	for text = text[:used]; len(text) >= 2; {
		n := int(binary.LittleEndian.Uint16(text))
		if 2+n > len(text) {
			return nil, fmt.Errorf("record: name %d has %d bytes, %d are left", len(out)+1, n, len(text)-2)
		}
		out = append(out, string(text[2:2+n]))
		text = text[2+n:]
	}
	return out, nil
}
