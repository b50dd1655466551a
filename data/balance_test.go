package data

import (
	"slices"
	"testing"
)

// TestBalance: classes without samples, classes of very different size and one class alone are
// named.
func TestBalance(t *testing.T) {
	of := func(counts ...int) (labels []int32) {
		for class, n := range counts {
			labels = append(labels, slices.Repeat([]int32{int32(class)}, n)...)
		}
		return labels
	}
	words := []string{"ant", "bee", "cow"}
	for _, c := range []struct {
		labels []int32
		words  []string
		notes  []string
	}{
		{labels: of(5, 4, 6)},
		{labels: of(19, 2, 19), words: words},
		{labels: of(20, 2, 5), words: words, notes: []string{`classes differ in size: 2 training samples of class "bee", 20 of class "ant"`}},
		{labels: of(1, 3, 30), notes: []string{"classes differ in size: 1 training sample of class 0, 30 of class 2"}},
		{labels: of(4, 0, 4), words: words, notes: []string{`1 of 3 classes have no training sample: "bee"`}},
		{labels: of(0, 7, 0), words: words, notes: []string{`all 7 training samples are of class "bee": a model learns from two classes at least`}},
	} {
		if notes := balance(c.labels, 3, c.words); !slices.Equal(notes, c.notes) {
			t.Errorf("%v: %q, want %q", c.labels, notes, c.notes)
		}
	}
	if notes := balance([]int32{0, 9}, 10, nil); len(notes) != 1 || notes[0] != "8 of 10 classes have no training sample: 1, 2, 3, 4, 5 and 3 more" {
		t.Errorf("%q", notes)
	}
}
