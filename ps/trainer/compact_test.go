package trainer

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// Ids are numbered as a map would, batch after batch, and make no garbage.
func TestCompact(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var c compacter
	for _, n := range []int{1, 2, 3, 1000, 17, 5000, 0, 64} {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(r.IntN(1+n/2) * 4096) // many alike below
		}
		if err := c.map32(ids, 1<<30); err != nil {
			t.Fatal(err)
		}
		seen := map[int32]int32{}
		for i, id := range ids {
			if _, ok := seen[id]; !ok {
				seen[id] = int32(len(seen))
			}
			if c.mapped[i] != seen[id] || c.keys[c.mapped[i]] != uint64(id) {
				t.Fatalf("%d ids: id %d is %d (key %d), want %d", n, id, c.mapped[i], c.keys[c.mapped[i]], seen[id])
			}
		}
		if len(c.keys) != len(seen) || len(c.mapped) != n {
			t.Errorf("%d ids: %d keys and %d places, want %d", n, len(c.keys), len(c.mapped), len(seen))
		}
	}
	ids := []int32{5, 7, 5}
	if n := testing.AllocsPerRun(100, func() { _ = c.map32(ids, 8) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	c.round = 1<<32 - 2 // it begins anew, once
	for range 3 {
		if err := c.map32(ids, 8); err != nil || len(c.keys) != 2 {
			t.Errorf("%d keys, %v", len(c.keys), err)
		}
	}
	for _, bad := range []int32{-1, 8} {
		if err := c.map32([]int32{0, bad}, 8); err == nil || !strings.Contains(err.Error(), "id 1 of the batch is") {
			t.Errorf("id %d: %v", bad, err)
		}
	}
}
