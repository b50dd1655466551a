// Package data holds the training and evaluation data of a job.
//
// Open opens a Dataset by name: MNIST, CIFAR-10, a folder of images, text as words or bytes, rows
// of Criteo, or a synthetic version of each. A Dataset has a Source of samples for training and
// another for evaluation. A Sampler selects the samples of a rank at each step (shuffled Shards, or
// Streams for sequences in order), and a Loader fills batches in advance.
package data

import "github.com/ringo-ml/ringo/internal/bytesview"

// Shape describes one sample of a source.
type Shape struct {
	Values []int `json:"values,omitempty"` // dimensions of the floats, images channels-last [h, w, c]; nil: no floats
	IDs    int   `json:"ids,omitempty"`    // number of 32-bit ids into a table: tokens, hashed categories
	Keys   int   `json:"keys,omitempty"`   // number of 64-bit keys of a table without a fixed number of rows; see ClickKey
	Labels int   `json:"labels,omitempty"` // number of 32-bit labels: 1, or one per token
	// Targets is the number of targets of a regression.
	Targets int `json:"targets,omitempty"`
	// Slots lists the fields with bags of keys: see Bags.
	Slots []Slot `json:"slots,omitempty"`
}

// Slot is a field of click data: a bag of keys, possibly empty, or a sequence of keys in a
// significant order.
type Slot struct {
	Name     string `json:"name"`
	Sequence bool   `json:"sequence,omitempty"`
}

// Size returns the number of floats per sample.
func (s Shape) Size() int {
	if len(s.Values) == 0 {
		return 0
	}
	size := 1
	for _, d := range s.Values {
		size *= d
	}
	return size
}

// Batch is N samples of one source, stored contiguously in each slice.
type Batch struct {
	N      int
	Values []float32 // N*Shape.Size()
	IDs    []int32   // N*Shape.IDs
	Keys   []uint64  // N*Shape.Keys
	Labels []int32   // N*Shape.Labels

	Targets []float32 // N*Shape.Targets
	Bags    Bags      // bags of Shape.Slots
	Index   []int32   // the samples' numbers in the source, from 0; set by a Loader

	order  []int32   // indices in the underlying source, for wrapper sources
	random Random    // generator of the current transform
	places []clickAt // positions in a source of clicks
}

// CopyFrom copies another batch. Memory is allocated only for a batch larger than all earlier ones.
func (b *Batch) CopyFrom(other *Batch) {
	b.N = other.N
	b.Index = append(b.Index[:0], other.Index...)
	b.Values = append(b.Values[:0], other.Values...)
	b.IDs = append(b.IDs[:0], other.IDs...)
	b.Keys = append(b.Keys[:0], other.Keys...)
	b.Labels = append(b.Labels[:0], other.Labels...)
	b.Targets = append(b.Targets[:0], other.Targets...)
	b.Bags.Keys = append(b.Bags.Keys[:0], other.Bags.Keys...)
	b.Bags.Offsets = append(b.Bags.Offsets[:0], other.Bags.Offsets...)
}

// Resize sets the size to n samples of a shape, without keys of bags. The content is undefined
// afterwards. Memory is allocated only for a batch larger than all earlier ones.
func (b *Batch) Resize(s Shape, n int) {
	b.N = n
	b.Values = bytesview.Sized(b.Values, n*s.Size())
	b.IDs = bytesview.Sized(b.IDs, n*s.IDs)
	b.Keys = bytesview.Sized(b.Keys, n*s.Keys)
	b.Labels = bytesview.Sized(b.Labels, n*s.Labels)
	b.Targets = bytesview.Sized(b.Targets, n*s.Targets)
	b.Bags.begin(len(s.Slots), n)
}

// Draw and a sample's index determine the random choices for the sample (crop, flip), so that these
// do not depend on batch, rank or thread.
type Draw struct {
	Seed    uint64
	Epoch   int
	Augment bool // false: no augmentation, independent of seed and epoch
}

// Source is an indexed set of samples of one shape.
type Source interface {
	// Len returns the number of samples.
	Len() int
	// Shape returns the shape of all samples. The caller must not modify the result.
	Shape() Shape
	// Fill resizes the batch and writes the samples idx in order. Goroutines may call Fill
	// simultaneously with separate batches. A batch with enough capacity needs no allocation. An
	// index outside [0, Len()) panics. After an error the batch's content is undefined.
	Fill(b *Batch, idx []int32, d Draw) error
}

// Head returns the first n samples of a source, or the source if n is 0 or at least its length.
func Head(s Source, n int) Source {
	if n <= 0 || n >= s.Len() {
		return s
	}
	return head{s, n}
}

type head struct {
	Source
	n int
}

func (h head) Len() int { return h.n }

func (h head) Fill(b *Batch, idx []int32, d Draw) error {
	for _, i := range idx {
		_ = [1]struct{}{}[uint(i)/uint(h.n)] // same panic as a slice index
	}
	return h.Source.Fill(b, idx, d)
}
