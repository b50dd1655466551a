// Package data holds what a job is trained on.
//
// Open reads a Dataset by name: MNIST, CIFAR-10, a folder of images, text as words
// or bytes, rows of Criteo, or the synthetic twin of each. A Dataset has a Source
// of samples to train on and one to evaluate. A Sampler says which samples a
// rank sees at each step (shuffled Shards, or Streams for sequences that follow
// one another), and a Loader fills the batches ahead of the step. Published
// names where sets can be fetched.
package data

import "github.com/ringo-ml/ringo/internal/bytesview"

// Shape is what one sample of a source holds.
type Shape struct {
	Values []int `json:"values,omitempty"` // the dimensions of its floats, images channels-last [h, w, c]; none: no floats
	IDs    int   `json:"ids,omitempty"`    // 32-bit numbers that index a table: tokens, hashed categories
	Keys   int   `json:"keys,omitempty"`   // 64-bit keys of a table without a fixed number of rows; see ClickKey
	Labels int   `json:"labels,omitempty"` // 32-bit labels: 1, or one per token
	// Targets are numbers that a regression is to find.
	Targets int `json:"targets,omitempty"`
	// Slots are the fields whose keys a sample has, as many in each as it likes: see Bags.
	Slots []Slot `json:"slots,omitempty"`
}

// Slot is a field of click data: a bag of keys, which may be empty, or a sequence of them, whose order counts.
type Slot struct {
	Name     string `json:"name"`
	Sequence bool   `json:"sequence,omitempty"`
}

// Size is the number of floats per sample.
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

// Batch is N samples of one source, one after the other in each slice.
type Batch struct {
	N      int
	Values []float32 // N*Shape.Size()
	IDs    []int32   // N*Shape.IDs
	Keys   []uint64  // N*Shape.Keys
	Labels []int32   // N*Shape.Labels

	Targets []float32 // N*Shape.Targets
	Bags    Bags      // of Shape.Slots
	Index   []int32   // of a Loader: the samples' numbers in the source, from 0

	order  []int32   // of the samples in the source below, for sources that stand on others
	random Random    // of the sample that is being transformed
	places []clickAt // of samples in a source of clicks
}

// CopyFrom makes the batch a copy of another one. It allocates only what no earlier batch was as large
// as.
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

// Resize gives the batch room for n samples of a shape, but for keys of bags, of which there are none. The content is
// undefined afterwards. It allocates only what no earlier batch was as large as.
func (b *Batch) Resize(s Shape, n int) {
	b.N = n
	b.Values = bytesview.Sized(b.Values, n*s.Size())
	b.IDs = bytesview.Sized(b.IDs, n*s.IDs)
	b.Keys = bytesview.Sized(b.Keys, n*s.Keys)
	b.Labels = bytesview.Sized(b.Labels, n*s.Labels)
	b.Targets = bytesview.Sized(b.Targets, n*s.Targets)
	b.Bags.begin(len(s.Slots), n)
}

// Draw is all that the random choices about a sample (crop, flip) may depend
// on, besides the sample's index: never on the batch, the rank or the thread.
type Draw struct {
	Seed    uint64
	Epoch   int
	Augment bool // false: the sample as it is evaluated, whatever seed and epoch
}

// Source is an indexed set of samples of one shape.
type Source interface {
	// Len is the number of samples.
	Len() int
	// Shape is the same for every sample. The caller does not write to it.
	Shape() Shape
	// Fill resizes the batch and writes the samples idx to it, in that order.
	// Goroutines may call it at once with batches of their own, and where the
	// batch is large enough nothing is allocated. An index outside [0, Len())
	// panics. After an error the batch's content is undefined.
	Fill(b *Batch, idx []int32, d Draw) error
}

// Head is the first n samples of a source; the source itself where n is 0 or
// not smaller than its length.
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
		_ = [1]struct{}{}[uint(i)/uint(h.n)] // panics like indexing a slice
	}
	return h.Source.Fill(b, idx, d)
}
