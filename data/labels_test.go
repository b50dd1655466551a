package data

import (
	"slices"
	"testing"
)

// TestCountLabelsEqualsNaiveTwin counts the labels of sources of each kind, of parts and of heads,
// as by reading each sample.
func TestCountLabelsEqualsNaiveTwin(t *testing.T) {
	mnist, err := Open("mnist", Config{Dir: Synthetic, Seed: 1, TrainLimit: 3000, EvalLimit: 100})
	if err != nil {
		t.Fatal(err)
	}
	batch := Batch{N: 2500, Values: make([]float32, 2500)}
	for i := range batch.N {
		batch.Labels = append(batch.Labels, int32(i*i%10))
	}
	memory, err := FromBatch(Shape{Values: []int{1}, Labels: 1}, batch)
	if err != nil {
		t.Fatal(err)
	}
	pictures := newEncoded(nil, []int32{3, 1, 3, 9, 3}, 8, nil)
	part := subset{pictures, []int32{4, 3, 1}}
	for name, c := range map[string]struct {
		src  Source
		want []int64
	}{
		"images in memory": {mnist.Train, nil}, "head": {Head(memory, 1025), nil}, "samples in memory": {memory, nil},
		"images on demand": {subset{pictures, []int32{0, 1, 2, 3, 4}}, []int64{0, 1, 0, 3, 0, 0, 0, 0, 0, 1}}, "part of images": {part, []int64{0, 1, 0, 1, 0, 0, 0, 0, 0, 1}}, "head of a part": {Head(part, 2), []int64{0, 0, 0, 1, 0, 0, 0, 0, 0, 1}},
	} {
		src := c.src
		if c.want == nil {
			c.want = make([]int64, 10)
			for i := range src.Len() {
				var b Batch
				if err := src.Fill(&b, []int32{int32(i)}, Draw{}); err != nil {
					t.Fatal(err)
				}
				c.want[b.Labels[0]]++
			}
		}
		if got, err := CountLabels(src, 10); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
	if _, err := CountLabels(memory, 9); err == nil {
		t.Error("label 9 of 9 classes is counted")
	}
	none, err := FromBatch(Shape{Values: []int{1}}, Batch{N: 1, Values: []float32{1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := CountLabels(none, 9); err == nil {
		t.Error("samples without labels are counted")
	}
}
