package record

import (
	"fmt"
	"io"
	"slices"
	"unsafe"
)

// Glance is what the last n phases and steps were, at most a ring of them: a Snapshot without operations and without what is under
// way. nil of a nil Recorder. It costs 0.1 us an event.
func (r *Recorder) Glance(n int) *Snapshot {
	if r == nil {
		return nil
	}
	r.names.mu.Lock()
	names := slices.Clone(r.names.list)
	r.names.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.outline()
	s.Phases, s.names = r.phases.latest(n), names
	return s
}

// Glance reads of the memory of a Recorder in another process, which may go on recording, what Recorder.Glance says: nil and no error of
// memory that its process has not begun to write to. memory is the file that Create made. Unlike Read it looks at little: 512 events cost 0.1 ms,
// so that one may look again and again. It believes nothing that it reads.
func Glance(memory io.ReaderAt, n int) (*Snapshot, error) {
	var head [headWords]uint64
	if err := readWords(memory, head[:], 0); err != nil {
		return nil, err
	}
	cfg, ok, err := headed(head[:])
	if !ok {
		return nil, err
	}
	// A memory of the same layout of which the head, the last events and the names alone are there.
	from := headWords + slotWords*(cfg.Open+cfg.Operations)
	ring := make([]uint64, slotWords*min(cfg.Phases, max(0, n)))
	end := head[headPhasesAt]
	first := end - min(end, uint64(len(ring)/slotWords))
	for at := first; at < end; { // the ring's end may lie between
		place := int(at & uint64(cfg.Phases-1))
		count := min(end-at, uint64(cfg.Phases-place))
		part := ring[slotWords*(at-first) : slotWords*(at-first+count)]
		if err := readWords(memory, part, from+slotWords*place); err != nil {
			return nil, err
		}
		at += count
	}
	m := memoryOf(head[:])
	s := m.outline()
	s.Phases = make([]Event, 0, end-first)
	var after [headWords]uint64
	if err := readWords(memory, after[:], 0); err != nil {
		return nil, err
	}
	for at := first; at < end; at++ {
		// Its place may have been another event's meanwhile; the one being written now is not counted yet.
		if slot := (*slot)(ring[slotWords*(at-first):]); slot[0] == at+1 && after[headPhasesAt] < at+uint64(cfg.Phases) {
			s.Phases = append(s.Phases, slot.get())
		}
	}
	used := min(after[headNamesAt], uint64(cfg.Names))
	text := make([]byte, used)
	if _, err := memory.ReadAt(text, int64(8*(cfg.words()-cfg.Names/8))); err != nil {
		return nil, fmt.Errorf("record: reading names: %w", err)
	}
	s.names, err = decodeNames(text, used)
	return s, err
}

// readWords reads words from a place in words on.
func readWords(from io.ReaderAt, into []uint64, at int) error {
	if len(into) == 0 {
		return nil
	}
	if _, err := from.ReadAt(unsafe.Slice((*byte)(unsafe.Pointer(&into[0])), 8*len(into)), int64(8*at)); err != nil {
		return fmt.Errorf("record: reading memory at byte %d: %w", 8*at, err)
	}
	return nil
}

// memoryOf is a memory of which there is no more than the head.
func memoryOf(head []uint64) memory {
	return memory{head: head, operations: ring{count: &head[headOperationsAt]}, phases: ring{count: &head[headPhasesAt]}}
}

// latest are the last n events that a ring holds. The Recorder's lock is held.
func (g *ring) latest(n int) (out []Event) {
	end := *g.count
	for at := end - min(end, uint64(max(0, n)), uint64(g.places)); at < end; at++ {
		out = append(out, g.slot(at).get())
	}
	return out
}
