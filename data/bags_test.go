package data

import (
	"slices"
	"strings"
	"testing"
)

var twoSlots = Shape{Labels: 1, Slots: []Slot{{Name: "genres"}, {Name: "history", Sequence: true}}}

// Bags of any length, with the first and the last key there are, come as they were given, in any order of samples, and copies are apart.
func TestBags(t *testing.T) {
	const last = 1<<64 - 1
	all := Batch{N: 3, Labels: []int32{1, 0, 1}, Bags: Bags{
		Keys:    []uint64{7, 0, last, 5, 5, 9},
		Offsets: []int32{0, 1, 1, 3, 5, 6, 6},
	}}
	src, err := FromBatch(twoSlots, all)
	if err != nil {
		t.Fatal(err)
	}
	var b, copied Batch
	for range 2 { // the second time over what is there
		if err := src.Fill(&b, []int32{2, 1, 2, 0}, Draw{}); err != nil {
			t.Fatal(err)
		}
		copied.CopyFrom(&b)
	}
	b.Bags.Keys[0] = 3
	want := [][]uint64{{0, last}, nil, {0, last}, {7}, nil, {9}, nil, {5, 5}}
	for i, w := range want {
		if got := copied.Bags.Bag(i/4, 4, i%4); !slices.Equal(got, w) {
			t.Errorf("slot %d, sample %d: %v, want %v", i/4, i%4, got, w)
		}
	}
	if err := src.Fill(&b, nil, Draw{}); err != nil || len(b.Bags.Keys) > 0 || !slices.Equal(b.Bags.Offsets, []int32{0}) {
		t.Errorf("no samples: %v, %v", b.Bags, err)
	}
}

// What are no bags of so many samples is refused, with what is wrong.
func TestBagsRefused(t *testing.T) {
	for want, bags := range map[string]Bags{
		"want 5 offsets of bags, from 0, but there are 4": {Offsets: []int32{0, 0, 0, 0}},
		"want 5 offsets of bags, from 0, but there are 5": {Keys: []uint64{1}, Offsets: []int32{1, 1, 1, 1, 1}},
		"bag 1 ends at 0, before it begins at 1":          {Keys: []uint64{1}, Offsets: []int32{0, 1, 0, 1, 1}},
		"the last bag ends at 2, but there are 1 keys":    {Keys: []uint64{1}, Offsets: []int32{0, 1, 1, 2, 2}},
	} {
		if _, err := FromBatch(twoSlots, Batch{N: 2, Labels: []int32{0, 1}, Bags: bags}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := FromBatch(Shape{Labels: 1}, Batch{N: 1, Labels: []int32{0}, Bags: Bags{Keys: []uint64{1}}}); err == nil || !strings.Contains(err.Error(), "samples have no slots") {
		t.Errorf("got %v", err)
	}
	if _, err := FromSlice([]int{1}, twoSlots, func(int, Sample) error { return nil }); err == nil || !strings.Contains(err.Error(), "use FromBatch") {
		t.Errorf("got %v", err)
	}
}
