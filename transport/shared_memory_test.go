package transport

import "testing"

func TestWindowsAlloc(t *testing.T) {
	w := &SharedMemory{Ranks: []int{3, 5}, Index: 1, Arenas: [][]byte{make([]byte, 5*arenaAlign), make([]byte, 5*arenaAlign)}}
	for i, c := range []struct{ n, off int }{{1, 0}, {arenaAlign, arenaAlign}, {arenaAlign + 1, 2 * arenaAlign}, {arenaAlign, 4 * arenaAlign}} {
		p := w.Alloc(c.n)
		if len(p) != c.n || cap(p) != c.n {
			t.Fatalf("allocation %d: %d bytes, capacity %d, want %d", i, len(p), cap(p), c.n)
		}
		if off, ok := w.Offset(p); !ok || off != c.off {
			t.Errorf("allocation %d: at %d, %v, want %d", i, off, ok, c.off)
		}
	}
	if p := w.Alloc(1); p != nil {
		t.Error("a full arena gave more")
	}
	for name, p := range map[string][]byte{"ordinary memory": make([]byte, 8), "another's arena": w.Arenas[0][:8], "no memory": nil} {
		if off, ok := w.Offset(p); ok {
			t.Errorf("%s lies at %d of the arena", name, off)
		}
	}
}

func TestWindowsTakeTheLastBack(t *testing.T) {
	w := &SharedMemory{Ranks: []int{0}, Arenas: [][]byte{make([]byte, 3*arenaAlign)}}
	first, last := w.Alloc(100), w.Alloc(arenaAlign+5)
	last[arenaAlign] = 1
	for name, p := range map[string][]byte{"not the last": first, "a part": last[:5], "ordinary memory": make([]byte, 100), "nothing": nil} {
		if w.Return(p) {
			t.Errorf("%s was taken back", name)
		}
	}
	if !w.Return(last) {
		t.Error("the last was not taken back")
	}
	if again := w.Alloc(2 * arenaAlign); &again[0] != &last[0] || again[arenaAlign] != 0 {
		t.Error("it is given out again elsewhere, or as it was")
	}
}

func TestWindowsRefuseMoreThanThereIs(t *testing.T) {
	w := &SharedMemory{Ranks: []int{0}, Arenas: [][]byte{make([]byte, 100)}}
	for _, n := range []int{-1, 101, 1 << 62} {
		if w.Alloc(n) != nil {
			t.Errorf("allocated %d of 100 bytes", n)
		}
	}
	if len(w.Alloc(100)) != 100 || w.Alloc(1) != nil {
		t.Error("an arena is to be given whole, once")
	}
}

func TestWindowsAreFreedByTheLastHolder(t *testing.T) {
	var freed []int
	w := &SharedMemory{Ranks: []int{0}, Arenas: [][]byte{make([]byte, 3*arenaAlign)}, Free: func(used int) { freed = append(freed, used) }}
	w.Hold()
	w.Alloc(arenaAlign + 1)
	w.Hold()
	w.Drop()
	if len(freed) != 0 {
		t.Error("freed while it is held")
	}
	w.Drop()
	if len(freed) != 1 || freed[0] != 2*arenaAlign {
		t.Errorf("freed with %v bytes in use, want once with %d", freed, 2*arenaAlign)
	}
}
