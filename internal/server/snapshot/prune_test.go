package snapshot

import (
	"slices"
	"testing"
)

// Others than the newest stay where they are named, with what they are deltas to.
func TestPruneLeavesOthers(t *testing.T) {
	dir := t.TempDir()
	for i, base := range []uint64{0, 1, 0, 3, 4, 0, 6} {
		if s := save(t, dir, base, i); s.Number != uint64(i)+1 {
			t.Fatalf("number %d", s.Number)
		}
	}
	for _, step := range []struct {
		others, want []uint64
	}{
		{[]uint64{2, 5}, []uint64{1, 2, 3, 4, 5, 6, 7}}, {[]uint64{4, 99}, []uint64{3, 4, 6, 7}}, {[]uint64{3, 7}, []uint64{3, 6, 7}}, {nil, []uint64{6, 7}},
	} {
		must(t, Prune(dir, 1, step.others...))
		if got := numbers(t, dir); !slices.Equal(got, step.want) {
			t.Fatalf("with %v: %v stay, want %v", step.others, got, step.want)
		}
	}
}
