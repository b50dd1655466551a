package store

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Rows are the same from the system's memory and from the disk, with lengths that were expected
// and others, with keys that look alike, and where the system cannot say what it has in memory.
func TestSegmentsColdAndWarm(t *testing.T) {
	for _, lengths := range []int{1, 90} {
		s, r, want := mustSegments(t, 0), rand.New(rand.NewPCG(3, uint64(lengths))), map[uint64]string{}
		var rows, found Rows
		keys := make([]uint64, 0, 3000)
		for i := range uint64(3000) {
			keys = append(keys, unmix((i/3)<<31|i%3)) // of three that look alike one is not there
		}
		slices.Sort(keys)
		for i, k := range keys {
			if i%3 > 0 {
				rows.Add(k, bytes.Repeat([]byte{byte(i)}, 40+r.IntN(lengths)))
				want[k] = string(rows.Row(rows.Len() - 1))
			}
		}
		must(t, s.Put(1, &rows))
		for _, state := range []string{"warm", "cold", "cannot say", "cold"} {
			if state == "cold" {
				must(t, s.file.Sync())
				must(t, unix.Fadvise(s.fd, 0, 0, unix.FADV_DONTNEED))
			}
			s.waits.Store(state == "cannot say")
			must(t, s.Get(1, keys, &found))
			if found.Len() != len(want) || !slices.IsSorted(found.Keys) {
				t.Fatalf("%s, lengths up to %d: %d rows of %d", state, lengths, found.Len(), len(want))
			}
			for i, k := range found.Keys {
				if string(found.Row(i)) != want[k] {
					t.Fatalf("%s, lengths up to %d: key %d is %q, want %q", state, lengths, k, found.Row(i), want[k])
				}
			}
		}
	}
}
