package data

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// CountLabels counts a source's samples of each class, for samples with a label each. Images are
// not decoded.
func CountLabels(s Source, classes int) ([]int64, error) {
	out := make([]int64, classes)
	count := func(labels ...int32) error {
		for _, k := range labels {
			if k < 0 || int(k) >= classes {
				return fmt.Errorf("data: a sample has label %d: want 0 to %d", k, classes-1)
			}
			out[k]++
		}
		return nil
	}
	if s.Shape().Labels != 1 {
		return nil, fmt.Errorf("data: %s of a sample: want 1", quantity.Count(s.Shape().Labels, "label"))
	}
	if at := labelsOf(s); at != nil {
		for i := range s.Len() {
			if err := count(at(int32(i))); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	var b Batch
	var idx []int32
	for lo := 0; lo < s.Len(); lo += len(idx) {
		idx = idx[:0]
		for i := lo; i < min(lo+1024, s.Len()); i++ {
			idx = append(idx, int32(i))
		}
		if err := s.Fill(&b, idx, Draw{}); err != nil {
			return nil, err
		}
		if err := count(b.Labels...); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// labelsOf returns the label by index of images that are decoded on demand; nil for other sources.
func labelsOf(s Source) func(i int32) int32 {
	switch s := s.(type) {
	case *encoded:
		return func(i int32) int32 { return s.Labels[i] }
	case head:
		return labelsOf(s.Source)
	case subset:
		if at := labelsOf(s.Source); at != nil {
			return func(i int32) int32 { return at(s.at[i]) }
		}
	}
	return nil
}
