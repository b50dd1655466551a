package data

import (
	"slices"
	"testing"
)

// TestBalance: classes without samples and classes of very different size are named, and one class alone is an error.
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
		err    string
	}{
		{labels: of(5, 4, 6)},
		{labels: of(19, 2, 19), words: words},
		{labels: of(20, 2, 5), words: words, notes: []string{`classes differ in size: 2 training samples of class "bee", 20 of class "ant"`}},
		{labels: of(1, 3, 30), notes: []string{"classes differ in size: 1 training sample of class 0, 30 of class 2"}},
		{labels: of(4, 0, 4), words: words, notes: []string{`1 of 3 classes have no training sample: "bee"`}},
		{labels: of(0, 7, 0), words: words, err: `all 7 training samples are of class "bee": want two classes at least`},
	} {
		notes, err := balance(c.labels, 3, c.words)
		if said := ""; !slices.Equal(notes, c.notes) || (err == nil) != (c.err == "") {
			t.Errorf("%v: %q, %v", c.labels, notes, err)
		} else if err != nil {
			if said = err.Error(); said != c.err {
				t.Errorf("%v: %s, want %s", c.labels, said, c.err)
			}
		}
	}
	if notes, err := balance([]int32{0, 9}, 10, nil); err != nil || len(notes) != 1 || notes[0] != "8 of 10 classes have no training sample: 1, 2, 3, 4, 5 and 3 more" {
		t.Errorf("%q, %v", notes, err)
	}
}
