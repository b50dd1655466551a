package collective

import "testing"

// Duplicates have IDs that no program gives, but for the first ones.
func TestDupIDs(t *testing.T) {
	seen := map[uint32]string{}
	for _, id := range []uint32{0, FirstSubgroup, FirstSubgroup + 1, 1000, MaxSubgroup - 1} {
		for k := uint32(1); k < 20; k++ {
			b := dupID(id, k)
			if b > maxID || seen[b] != "" || b >= FirstSubgroup && b < MaxSubgroup {
				t.Errorf("duplicate %d of group %d has ID %d", k, id, b)
			}
			seen[b] = "taken"
		}
	}
	if dupID(0, 7) != 7 || dupID(0, 8) != 8*MaxSubgroup {
		t.Error("the first duplicates of the main group share less memory than there is")
	}
}
