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
	tb := newTable(t, Config{Dim: 16, Rule: testRule{[]int{1, 16}}, Usage: true, MaxRows: 1 << 26})
	x := make([]float32, 16*5000)
	for at := 0; at < 60_000; at += 5000 {
		must(t, tb.Push(sequence(uint64(at), 5000), x, 1))
		st := tb.Stats()
		for i, space := range []*reservation{tb.weights.space, tb.state[0].space, tb.state[1].space, tb.usage.space, tb.index.arena.lines.space} {
			got := residentBytes(t, space)
			if a := st.Arrays[i]; got > a.Resident || got < a.Used/2 {
				t.Fatalf("%d rows: %s: %d bytes are resident, want at most %d for %d", st.Rows, a.Name, got, a.Resident, a.Used)
			}
		}
	}
}

func residentBytes(t *testing.T, r *reservation) int {
	t.Helper()
	r.making.Wait()
	return residentIn(t, r.usable[:r.opened()])
}

func residentIn(t *testing.T, b []byte) int {
	t.Helper()
	page := unix.Getpagesize()
	flags := make([]byte, (len(b)+page-1)/page)
	if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&flags[0]))); e != 0 {
		t.Fatal(e)
	}
	n := 0
	for _, f := range flags {
		n += int(f & 1)
	}
	return n * page
}

// The large page behind the one that is used is there before anything is written to it,
// and no other one; it holds zeros, and goes with the rest.
func TestPagesAreMadeAhead(t *testing.T) {
	const line = 16
	a, err := newArray[float32](line, 20*largePage/(4*line), wholeShift)
	must(t, err)
	must(t, a.grow(1))
	if unix.Madvise(a.space.usable[:smallPage], unix.MADV_POPULATE_WRITE) != nil {
		t.Skip("the system makes no pages ahead")
	}
	perPage := largePage / a.bytesOf(1)
	for items := 1000; items < a.most; items += perPage / 3 {
		must(t, a.grow(items))
		a.space.making.Wait()
		used := (items - 1) / perPage
		for page := range a.space.opened() / largePage {
			made := residentIn(t, a.space.usable[page*largePage:][:largePage])
			want := 0
			if page == used+1 && page >= largeFrom/largePage {
				want = largePage
			}
			if page > used && made != want {
				t.Fatalf("%d items end in page %d: of page %d %d bytes are there, want %d", items, used, page, made, want)
			}
		}
		for i, v := range a.item(uint32(items - 1)) {
			if v != 0 {
				t.Fatalf("item %d begins with %v at %d", items-1, v, i)
			}
		}
	}
	must(t, a.grow(a.most))
	must(t, a.release())
}

// What comes next is opened before it is needed, and found open when it is.
func TestOpenedAhead(t *testing.T) {
	const line = 16
	a, err := newArray[float32](line, 40*largePage/(4*line), wholeShift)
	must(t, err)
	must(t, a.grow(1))
	for range 5 {
		items, before := a.ready-1, a.space.opened()
		must(t, a.grow(items))
		a.space.making.Wait()
		after := a.space.opened()
		if after <= before || a.ready != items+1 {
			t.Fatalf("%d items are in use: %d bytes are open, before %d; %d are ready", items, after, before, a.ready)
		}
		must(t, a.grow(items+2))
		if a.bytesOf(a.ready) > after || a.ready < items+2 {
			t.Fatalf("%d items are ready, %d bytes are open", a.ready, after)
		}
		a.item(uint32(a.ready - 1))[0] = 1
		a.space.making.Wait()
	}
	must(t, a.release())
}

func TestReservationFails(t *testing.T) {
	if _, err := newArray[float32](1<<20, 1<<31-1, wholeShift); err == nil {
		t.Error("reserved 8 PiB")
	}
}
