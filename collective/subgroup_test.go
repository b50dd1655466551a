package collective

import "testing"

// Groups beside others have IDs that no program gives, but for the first ones.
func TestBesideIDs(t *testing.T) {
	seen := map[uint32]string{}
	for _, id := range []uint32{0, FirstSubgroup, FirstSubgroup + 1, 1000, MaxSubgroup - 1} {
		for k := uint32(1); k < 20; k++ {
			b := besideID(id, k)
			if b > maxID || seen[b] != "" || b >= FirstSubgroup && b < MaxSubgroup {
				t.Errorf("group %d beside %d has ID %d", k, id, b)
			}
			seen[b] = "taken"
		}
	}
	if besideID(0, 7) != 7 || besideID(0, 8) != 8*MaxSubgroup {
		t.Error("the first groups beside the main one share less memory than there is")
	}
}
