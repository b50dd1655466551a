package trainer

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// Ids are numbered as a map would, over one batch or several, and make no garbage.
func TestCompact(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var c keyIndex
	var mapped []int32
	seen := map[int32]int32{}
	for round, n := range []int{1, 2, 3, 1000, 17, 5000, 0, 64, 64, 3000, 64} {
		if round < 8 { // then all are numbered together
			c.begin()
			clear(seen)
		}
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(r.IntN(1+n/2) * 4096) // many alike below
		}
		var err error
		if mapped, err = c.addIDs(ids, 1<<30, mapped); err != nil {
			t.Fatal(err)
		}
		for i, id := range ids {
			if _, ok := seen[id]; !ok {
				seen[id] = int32(len(seen))
			}
			if mapped[i] != seen[id] || c.keys[mapped[i]] != uint64(id) {
				t.Fatalf("%d ids: id %d is %d (key %d), want %d", n, id, mapped[i], c.keys[mapped[i]], seen[id])
			}
		}
		if len(c.keys) != len(seen) || len(mapped) != n {
			t.Errorf("%d ids: %d keys and %d places, want %d", n, len(c.keys), len(mapped), len(seen))
		}
	}
	ids := []int32{5, 7, 5}
	batch := func() (err error) {
		c.begin()
		mapped, err = c.addIDs(ids, 8, mapped)
		return err
	}
	if n := testing.AllocsPerRun(100, func() { _ = batch() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	c.round = 1<<32 - 2 // it begins anew, once
	for range 3 {
		if err := batch(); err != nil || len(c.keys) != 2 {
			t.Errorf("%d keys, %v", len(c.keys), err)
		}
	}
	for _, bad := range []int32{-1, 8} {
		if _, err := c.addIDs([]int32{0, bad}, 8, nil); err == nil || !strings.Contains(err.Error(), "id 1 of the batch is") {
			t.Errorf("id %d: %v", bad, err)
		}
	}
}
