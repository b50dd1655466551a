package record

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"
	"unsafe"
)

// Snapshot is what a Recorder held at one time, perhaps of a process that is no more.
type Snapshot struct {
	Epoch    time.Time // when its clock was 0
	Process  int       // its number
	Identity Identity  // what it is in its job
	Active   bool      // it has not said that it records nothing any more
	Step     int64     // under way, -1 before the first
	// Open is what had begun and not ended, the oldest first, and Dropped how much began when there
	// was no room to tell.
	Open    []Event
	Dropped uint64
	// Operations and Phases are the last events that had ended, in that order, and OperationsEnded and PhasesEnded how many there ever
	// were. Behind the operations stand those of each lane, which are not in that count.
	Operations, Phases           []Event
	OperationsEnded, PhasesEnded uint64

	names []string
}

// Text is the text of a number; "" of one that is unknown.
func (s *Snapshot) Text(id Name) string {
	if id == 0 || int(id) > len(s.names) {
		return ""
	}
	return s.names[id-1]
}

// Snapshot is what the Recorder holds now; nil of a nil one.
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

// order sorts what goes on.
func (s *Snapshot) order() {
	since := func(e Event) int64 { return cmp.Or(e.Begun, e.Since) }
	slices.SortStableFunc(s.Open, func(a, b Event) int { return cmp.Compare(since(a), since(b)) })
}

// outline is what the head says, of a Snapshot without events.
func (m *memory) outline() *Snapshot {
	return &Snapshot{
		Epoch: time.Unix(0, int64(m.head[headEpoch])), Process: int(m.head[headProcess]), Step: int64(m.head[headStep]),
		Identity: Identity{Role: Role(m.head[headWho] >> 32), Number: int(uint32(m.head[headWho]))}, Active: m.head[headHeld] != 0,
		Dropped: m.head[headUnseen], OperationsEnded: *m.operations.count, PhasesEnded: *m.phases.count,
	}
}

// headed reads a head: ok is false where nothing has been recorded yet, or, with an error, where it is none.
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

// snapshot reads all but lanes and names.
func (m *memory) snapshot() *Snapshot {
	s := m.outline()
	for _, i := range m.open.going() {
		s.Open = append(s.Open, m.open.place(i).get())
	}
	s.Operations, s.Phases = m.operations.last(), m.phases.last()
	return s
}

// last are the events that a ring holds, without those that were not written to the end.
func (g *ring) last() (out []Event) {
	end := *g.count
	for n := end - min(end, uint64(g.places)); n < end; n++ {
		if at := g.slot(n); *at.stamp() == n+1 {
			out = append(out, at.get())
		}
	}
	return out
}

// Decode reads the memory of a Recorder, such as that which a launcher holds of a process that was killed. It believes
// nothing that it reads: b may be of another program, or damaged. What was being written when the process ended is left out. Of memory
// that its process never began to write to it returns nil and no error.
func Decode(b []byte) (*Snapshot, error) { return decodeLive(b, nil) }

// decodeLive is Decode of memory which a process may have written to while it was copied: again, where it is not nil, is a later
// copy. What has another stamp there is left out, as is what was being written.
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

// aligned is a copy of b in words, to which nobody else writes.
func aligned(b []byte) []uint64 {
	words := make([]uint64, len(b)/8)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words)), b)
	return words
}

func (m *memory) rings() []ring { return append([]ring{m.open, m.operations, m.phases}, m.lanes...) }

// leaveOut takes the events out of m that have another stamp in later, which is laid out alike.
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

// configOf reads the sizes in a head.
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
