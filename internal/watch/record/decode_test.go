package record

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

// bytes are a copy of the memory of r, which New has made.
func (r *Recorder) bytes() []byte {
	cfg, err := configOf(r.head)
	if err != nil {
		panic(err)
	}
	n := cfg.words()
	return bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&r.head[0])), 8*n))
}

func TestDamagedMemory(t *testing.T) {
	r := New(small)
	r.Name("first")
	good := r.bytes()
	set := func(word int, v uint64) []byte {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint64(b[8*word:], v)
		return b
	}
	for want, b := range map[string][]byte{
		"too few":             good[:100],
		"not the mark":        set(headMagic, 5),
		"of 65: want 1 to 64": set(headLanes, 65),
		"version 7":           set(headVersion, 7),
		"at byte 16: a size":  set(headOperations, 1<<40),
		"at byte 32: a size":  set(headOpen, 0),
		"power of two":        set(headPhases, 7),
		"multiple of 8":       set(headNames, 63),
		"its head says":       append(bytes.Clone(good), 0),
		"bytes of names in":   set(headNamesAt, 1<<63),
		"4 are left":          set(headNamesAt, 6),
	} {
		if _, err := Decode(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if s, err := Decode(set(headMagic, 0)); s != nil || err != nil {
		t.Errorf("memory that nobody began to write to: %v, %v", s, err)
	}
}

// What a process was writing when it was killed is left out; what it had written before is there.
func TestHalfWrittenEventIsLeftOut(t *testing.T) {
	r := New(small)
	for i := range uint32(5) {
		r.Add(operation(i))
	}
	op := r.Begin(operation(9))
	*r.operations.slot(3).stamp() = 0
	*r.table(op.place).stamp() = 0
	s := decoded(t, r)
	if got := seqs(s.Operations); len(got) != 3 || got[0] != 1 || got[2] != 4 || len(s.Open) != 0 {
		t.Errorf("%v, %+v", got, s.Open)
	}
}

// What was overwritten while it was copied is left out.
func TestMemoryIsReadMeanwhile(t *testing.T) {
	r := New(small)
	lane := r.Lane(new(sync.Mutex))
	for i := range uint32(4) {
		r.Add(operation(i))
		begin(lane, operation(10+i)).End(Unknown, 1, false)
	}
	first := r.Begin(operation(20))
	r.Begin(operation(21))
	before := r.bytes()
	r.Add(operation(4))
	begin(lane, operation(14))
	first.End(9, 9, false)
	s, err := decodeLive(before, r.bytes())
	if err != nil || !slices.Equal(seqs(s.Operations), []uint32{2, 3, 11, 12, 13}) || !slices.Equal(seqs(s.Open), []uint32{21}) {
		t.Errorf("%v: ended %v, going on %v", err, seqs(s.Operations), seqs(s.Open))
	}
}

// Whatever lies there, it is read without a panic, and no more comes out than can be in it. A glance shows the same of what is under way and
// of the last phases, but for the oldest of a full ring, which may be overwritten.
func FuzzDecode(f *testing.F) {
	r := New(Config{Operations: 2, Phases: 2, Open: 1, Lanes: 1, Names: 16})
	r.Name("a")
	r.Begin(operation(1))
	r.Add(operation(2))
	r.Span(Forward, 1, 1, 2)
	lane := r.Lane(new(sync.Mutex))
	begin(lane, operation(3))
	begin(lane, operation(4)).End(Unknown, 1, false)
	f.Add(r.bytes())
	f.Add(make([]byte, 8*headWords))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Decode(b)
		if err != nil || s == nil {
			return
		}
		if n := len(s.Open) + len(s.Operations) + len(s.Phases); 8*slotWords*n > len(b) {
			t.Errorf("%d events in %d bytes", n, len(b))
		}
		g, err := RecentSnapshot(bytes.NewReader(b), 1<<30)
		if err != nil || !slices.Equal(g.Open, s.Open) || !slices.Equal(g.Phases, s.Phases[len(s.Phases)-min(len(s.Phases), len(g.Phases)):]) || len(g.Phases) < len(s.Phases)-1 {
			t.Errorf("%v: a glance shows %+v, want %+v", err, g, s)
		}
	})
}
