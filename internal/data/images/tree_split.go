package images

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// EvalPart returns the name of the evaluation part, "" without one.
func (t *Tree) EvalPart() string {
	for _, part := range datafile.EvalParts() {
		if len(t.parts[part]) > 0 {
			return part
		}
	}
	return ""
}

// Split returns the training and the evaluation pictures, each in the order of their paths, and the
// names of the classes of the training part. Without an evaluation part, held, unless nil, selects
// evaluation pictures from the training part by key; the classes then include theirs.
func (t *Tree) Split(held func(key string) bool) (train, eval []Picture, classes []string, err error) {
	train, eval = t.parts["train"], t.parts[t.EvalPart()]
	for _, p := range train {
		classes = append(classes, p.Class)
	}
	if len(eval) == 0 && held != nil {
		all := train
		train = nil
		for _, p := range all {
			if held(p.Key) {
				eval = append(eval, p)
			} else {
				train = append(train, p)
			}
		}
	}
	if len(train) == 0 || len(eval) == 0 {
		if len(train) == 0 && t.archived {
			return nil, nil, nil, fmt.Errorf("%s has no image in a folder train, and classes of an archive are in train/CLASS/…: unpack an archive of CLASS/NAME.jpg, and name the folder", t.root)
		}
		left := strings.Join(append([]string{""}, t.Skipped.Sentences()...), "; ")
		return nil, nil, nil, fmt.Errorf("%s has %s to train on in train/CLASS/… and %d to evaluate on, held out of these or in test, val, validation or eval: both are needed (.jpg, .jpeg or .png)%s",
			t.root, quantity.Count(len(train), "image"), len(eval), left)
	}
	order := func(a, b Picture) int { return strings.Compare(a.Key, b.Key) }
	slices.SortFunc(train, order)
	slices.SortFunc(eval, order)
	slices.Sort(classes)
	classes = slices.Compact(classes)
	for _, p := range eval {
		if _, ok := slices.BinarySearch(classes, p.Class); !ok {
			return nil, nil, nil, fmt.Errorf("%s: class %q is not among the %d classes of the training images", p.Path, p.Class, len(classes))
		}
	}
	return train, eval, classes, nil
}

// Spread returns n pictures taken evenly from pictures in the order of classes: the first n could
// be of one class. It returns all pictures if n is 0 or too large.
func Spread(all []Picture, n int) []Picture {
	if n <= 0 || n >= len(all) {
		return all
	}
	out := make([]Picture, n)
	for i := range out {
		out[i] = all[(2*i+1)*len(all)/(2*n)]
	}
	return out
}

// LabelsOf returns the classes of pictures by number.
func LabelsOf(pictures []Picture, classes []string) []int32 {
	labels := make([]int32, len(pictures))
	for i, p := range pictures {
		n, _ := slices.BinarySearch(classes, p.Class)
		labels[i] = int32(n)
	}
	return labels
}
