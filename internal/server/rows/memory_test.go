package rows

import "testing"

// A table of rows of width 16 with one float of state takes at most 88 bytes a row
// while it grows, counted after every batch; the ends of arrays, which do not depend
// on the rows, apart. In it each segment has as many keys as one of a table of 50
// million rows has when that holds 9 million and more.
func TestBytesWhileGrowing(t *testing.T) {
	if raceDetector {
		t.Skip("the heap's slabs are not counted to the page")
	}
	const most = 200_000
	tb := newTable(t, Config{Dim: 16, Rule: testRule{[]int{1}}, MaxRows: most})
	const n = 1000
	keys, x := make([]uint64, n), make([]float32, n*16)
	worst, worstAt := 0.0, 0
	for at := 0; at < most; at += n {
		copy(keys, sequence(uint64(at), n))
		must(t, tb.Pull(keys, x))
		must(t, tb.Push(keys, x, 1))
		st := tb.Stats()
		if st.Rows != at+n || tb.freeRows() != 0 {
			t.Fatalf("%d rows, %d numbers idle", st.Rows, tb.freeRows())
		}
		if st.Rows < 550*len(tb.index.segments) {
			continue
		}
		if each := float64(st.used()) / float64(st.Rows); each > worst {
			worst, worstAt = each, st.Rows
		}
		if most := st.used() + 6*largePage; st.Resident() > most {
			t.Fatalf("%d bytes resident, want at most %d", st.Resident(), most)
		}
	}
	if worst > 88 {
		t.Errorf("%.2f bytes a row at %d rows", worst, worstAt)
	}
	t.Logf("%.2f bytes a row at most, with %d rows", worst, worstAt)
}

// Rows that come and go, the same number of them at all times, use the same memory
// again.
func TestChurnLeavesNothing(t *testing.T) {
	tb := newTable(t, Config{Dim: 2, MaxRows: 40_000})
	const n, live = 1000, 20
	x := make([]float32, 2*n)
	var used int
	for round := range 200 {
		must(t, tb.Pull(sequence(uint64(round*n)*7919, n), x))
		if round >= live {
			gone, err := tb.Delete(sequence(uint64((round-live)*n)*7919, n))
			if err != nil || gone != n {
				t.Fatalf("deleted %d: %v", gone, err)
			}
		}
		if round == 2*live {
			used = tb.Stats().used()
		}
	}
	must(t, tb.index.check())
	st := tb.Stats()
	if st.Rows != live*n || tb.freeRows() > n {
		t.Errorf("%d rows, %d free", st.Rows, tb.freeRows())
	}
	if st.used() > used+used/10 {
		t.Errorf("%d bytes, were %d", st.used(), used)
	}
}
