//go:build !race

package rows

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What the system says is resident is what Stats says, or less; after Close the
// addresses are free.
func TestResidentPages(t *testing.T) {
	tb := newTable(t, Config{Dim: 16, Rule: testRule{[]int{1, 16}}, Figures: true, MaxRows: 1 << 26})
	x := make([]float32, 16*5000)
	for at := 0; at < 60_000; at += 5000 {
		must(t, tb.Push(sequence(uint64(at), 5000), x, 1))
		st := tb.Stats()
		for i, space := range []*reservation{tb.weights.space, tb.state[0].space, tb.state[1].space, tb.figures.space, tb.index.arena.lines.space} {
			got := residentBytes(t, space)
			if a := st.Arrays[i]; got > a.Resident || got < a.Used/2 {
				t.Fatalf("%d rows: %s: %d bytes are resident, want at most %d for %d", st.Rows, a.Name, got, a.Resident, a.Used)
			}
		}
	}
}

func residentBytes(t *testing.T, r *reservation) int {
	t.Helper()
	page := unix.Getpagesize()
	flags := make([]byte, (r.open+page-1)/page)
	if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(r.start()), uintptr(r.open), uintptr(unsafe.Pointer(&flags[0]))); e != 0 {
		t.Fatal(e)
	}
	n := 0
	for _, f := range flags {
		n += int(f & 1)
	}
	return n * page
}

func TestReservationFails(t *testing.T) {
	if _, err := newArray[float32](1<<20, 1<<31-1, wholeShift); err == nil {
		t.Error("reserved 8 PiB")
	}
}
