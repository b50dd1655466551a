package collective

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/internal/transport/mem"
)

// Duplicates have IDs that no program gives, but for the first ones.
func TestDupIDs(t *testing.T) {
	seen := map[uint32]string{}
	for _, id := range []uint32{0, FirstSubgroup, FirstSubgroup + 1, 1000, maxSubgroup - 1} {
		for k := uint32(1); k < 20; k++ {
			b := dupID(id, k)
			if b > maxID || seen[b] != "" || b >= FirstSubgroup && b < maxSubgroup {
				t.Errorf("duplicate %d of group %d has ID %d", k, id, b)
			}
			seen[b] = "taken"
		}
	}
	if dupID(0, 7) != 7 || dupID(0, 8) != 8*maxSubgroup {
		t.Error("the first duplicates of the main group share less memory than there is")
	}
}

// A room is for one group after the other: it is vacated when all ranks have closed the one before, and a group that finds it taken, or asks
// for one that there is not, is refused.
func TestRooms(t *testing.T) {
	meshes := mem.NewShared(2, testArena)
	make2 := func(id uint32, room int) (gs [2]*Group) {
		for r := range gs {
			var err error
			if gs[r], err = New(meshes[r], Config{ID: id, ShmSlot: room}); err != nil {
				t.Fatal(err)
			}
		}
		return gs
	}
	sum := func(gs [2]*Group) {
		var wg sync.WaitGroup
		for _, g := range gs {
			wg.Go(func() {
				for range 20 { // more than there are slots
					x := []float32{1, 2}
					if err := errors.Join(AllReduce(g, x, Sum), same("sum", x, []float32{2, 4})); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	}
	for id := uint32(1000); id < 1003; id++ {
		gs := make2(id, 3)
		if how := gs[0].Choice("allreduce", 1<<20); how != Direct {
			t.Errorf("group %d reduces by %s", id, how)
		}
		sum(gs)
		for r, g := range gs {
			if g.ShmReleased() {
				t.Errorf("group %d: room 3 is free when %d ranks have closed it", id, r)
			}
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := New(meshes[0], Config{ID: id + 100, ShmSlot: 3}); err == nil || !strings.Contains(err.Error(), "its shared memory is still in use") {
			t.Errorf("the room of group %d that was not vacated: %v", id, err)
		}
		if !gs[0].ShmReleased() || !gs[1].ShmReleased() {
			t.Errorf("room 3 is taken, though both ranks have closed group %d", id)
		}
	}
	sum(make2(2000, -1)) // by messages
	for _, c := range []Config{{ID: 9, ShmSlot: 17}, {ID: 3, ShmSlot: 1}, {ID: maxSubgroup, ShmSlot: 1}} {
		if err := c.Validate(); err == nil {
			t.Errorf("room %d of group %d is not refused", c.ShmSlot, c.ID)
		}
	}
}
