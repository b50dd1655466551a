package data

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// square is a shape with some of everything.
var square = Shape{Values: []int{2, 2}, IDs: 3, Keys: 1, Labels: 2, Targets: 1}

// numbered is a batch of n samples whose values say which sample they are of.
func numbered(n int) Batch {
	var b Batch
	b.Resize(square, n)
	for i := range n {
		s := b.At(square, i)
		for k := range s.Values {
			s.Values[k] = float32(100*i + k)
		}
		for k := range s.IDs {
			s.IDs[k] = int32(10*i + k)
		}
		s.Keys[0], s.Labels[0], s.Labels[1], s.Targets[0] = uint64(i), int32(i), int32(-i), float32(i)/2
	}
	return b
}

func same(a, b Batch) bool {
	return a.N == b.N && slices.Equal(a.Values, b.Values) && slices.Equal(a.IDs, b.IDs) && slices.Equal(a.Keys, b.Keys) &&
		slices.Equal(a.Labels, b.Labels) && slices.Equal(a.Targets, b.Targets)
}

// All sources in memory give the samples that were asked for, in that order.
func TestSourcesInMemory(t *testing.T) {
	all := numbered(7)
	put := func(i int, s Sample) error { s.copy(all.At(square, i)); return nil }
	sources := map[string]func() (Source, error){
		"slices": func() (Source, error) { return FromBatch(square, all) },
		"items":  func() (Source, error) { return FromSlice([]int{0, 1, 2, 3, 4, 5, 6}, square, put) },
		"sequence": func() (Source, error) {
			return FromSeq(func(yield func(int) bool) {
				for i := 0; i < 7 && yield(i); i++ {
				}
			}, 7, square, put)
		},
	}
	idx := []int32{6, 0, 3, 3}
	want := Batch{}
	want.Resize(square, len(idx))
	for i, n := range idx {
		want.At(square, i).copy(all.At(square, int(n)))
	}
	for name, open := range sources {
		s, err := open()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got Batch
		if err := s.Fill(&got, idx, Draw{}); err != nil || !same(got, want) || s.Len() != 7 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if a, b := (&Dataset{Train: s}).Fingerprint(), (&Dataset{Train: Head(s, 6)}).Fingerprint(); a == b {
			t.Errorf("%s: fewer samples have the same fingerprint", name)
		}
	}
}

func TestSourcesInMemoryRefuse(t *testing.T) {
	short := numbered(4)
	short.IDs, short.Targets = short.IDs[1:], nil
	_, err := FromBatch(square, short)
	if err == nil || !strings.Contains(err.Error(), "4 samples with 3 ids each, but there are 11") || !strings.Contains(err.Error(), "1 targets each, but there are 0") {
		t.Errorf("two slices too short: %v", err)
	}
	for _, s := range []Shape{{Values: []int{1 << 20, 1 << 20}}, {Values: []int{0}}, {IDs: -1}} {
		if _, err := FromBatch(s, Batch{N: 1}); err == nil {
			t.Errorf("%v was taken", s)
		}
	}
	if _, err := FromBatch(Shape{Labels: math.MaxInt / 2}, Batch{N: 4}); err == nil {
		t.Error("a product beyond what an int holds was taken")
	}
	endless := func(yield func(int) bool) {
		for yield(1) {
		}
	}
	if _, err := FromSeq(endless, 100, Shape{Labels: 1}, func(int, Sample) error { return nil }); err == nil || !strings.Contains(err.Error(), "more than 100 items") {
		t.Errorf("a sequence without end: %v", err)
	}
	own := errors.New("mine")
	s, err := FromSlice([]int{1, 2}, Shape{Labels: 1}, func(i int, _ Sample) error {
		if i == 2 {
			return own
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Fill(new(Batch), []int32{0, 1}, Draw{}); !errors.Is(err, own) || !strings.Contains(err.Error(), "item 1") {
		t.Errorf("the function's error: %v", err)
	}
}

// A split has each sample in one part, about as many held out as wanted, and the same ones where others are appended.
func TestSplit(t *testing.T) {
	for _, n := range []int{2, 3, 10, 1000, 20000} {
		for _, share := range []float64{0.001, 0.1, 0.5, 0.999} {
			s, err := FromBatch(Shape{Labels: 1}, Batch{N: n, Labels: make([]int32, n)})
			if err != nil {
				t.Fatal(err)
			}
			train, eval, err := Split(s, share)
			if err != nil {
				t.Fatal(err)
			}
			all := append(slices.Clone(train.(subset).at), eval.(subset).at...)
			slices.Sort(all)
			for i, v := range all {
				if int(v) != i {
					t.Fatalf("%d samples, share %v: sample %d is %d", n, share, i, v)
				}
			}
			if train.Len() == 0 || eval.Len() == 0 || len(all) != n {
				t.Errorf("%d samples, share %v: parts of %d and %d", n, share, train.Len(), eval.Len())
			}
			if got := float64(eval.Len()); n >= 1000 && math.Abs(got-share*float64(n)) > 4*math.Sqrt(float64(n)*share*(1-share))+1 {
				t.Errorf("%d samples, share %v: %v held out", n, share, got)
			}
		}
	}
	for i := range 1000 {
		if Held(i, 0.1) && !Held(i, 0.2) {
			t.Errorf("sample %d is held out of a smaller share alone", i)
		}
	}
	if _, _, err := Split(&memory{all: Batch{N: 1}}, 0.5); err == nil {
		t.Error("one sample was split")
	}
	if _, _, err := Split(&memory{all: Batch{N: 9}}, 1); err == nil {
		t.Error("all were held out")
	}
}
