package data

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/data/datafile"
)

// Sample is one sample's part of a batch, to read or write in place. Bags are accessible only
// through the batch.
type Sample struct {
	Values  []float32 // Shape.Size() values
	IDs     []int32
	Keys    []uint64
	Labels  []int32
	Targets []float32
}

// At returns sample i of the batch, in the batch's memory.
func (b *Batch) At(s Shape, i int) Sample {
	n := s.Size()
	return Sample{
		Values: b.Values[i*n:][:n:n], IDs: b.IDs[i*s.IDs:][:s.IDs:s.IDs], Keys: b.Keys[i*s.Keys:][:s.Keys:s.Keys],
		Labels: b.Labels[i*s.Labels:][:s.Labels:s.Labels], Targets: b.Targets[i*s.Targets:][:s.Targets:s.Targets],
	}
}

func (s Sample) copy(from Sample) {
	copy(s.Values, from.Values)
	copy(s.IDs, from.IDs)
	copy(s.Keys, from.Keys)
	copy(s.Labels, from.Labels)
	copy(s.Targets, from.Targets)
}

// memory is the source of samples that are in a batch in memory.
type memory struct {
	shape Shape
	all   Batch
}

// FromBatch returns the source of the samples in a batch, stored contiguously in each slice. The
// caller's slices are not copied and must not change. All slices with a length that does not match
// the shape are reported in one error.
func FromBatch(shape Shape, all Batch) (Source, error) {
	errs := []error{shape.validate()}
	if all.N < 0 || all.N > datafile.MaxElements {
		return nil, fmt.Errorf("data: %d samples: want 0 to %d", all.N, datafile.MaxElements)
	}
	check := func(name string, got, each int) {
		if each >= 0 && (all.N > 0 && each > math.MaxInt/all.N || got != all.N*each) {
			errs = append(errs, fmt.Errorf("data: %d samples with %d %s each, but there are %d", all.N, each, name, got))
		}
	}
	check("values", len(all.Values), shape.Size())
	check("ids", len(all.IDs), shape.IDs)
	check("keys", len(all.Keys), shape.Keys)
	check("labels", len(all.Labels), shape.Labels)
	check("targets", len(all.Targets), shape.Targets)
	errs = append(errs, all.Bags.validate(len(shape.Slots), all.N))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &memory{shape, all}, nil
}

// validate returns an error for impossible dimensions.
func (s Shape) validate() error {
	size := 1
	for _, d := range s.Values {
		if d < 1 || d > datafile.MaxElements/size {
			return fmt.Errorf("data: samples of %v values: want positive sizes with a product up to %d", s.Values, datafile.MaxElements)
		}
		size *= d
	}
	if least := min(s.IDs, s.Keys, s.Labels, s.Targets); least < 0 {
		return fmt.Errorf("data: samples of %d ids, %d keys, %d labels and %d targets: want none below 0", s.IDs, s.Keys, s.Labels, s.Targets)
	}
	return nil
}

func (m *memory) Len() int     { return m.all.N }
func (m *memory) Shape() Shape { return m.shape }

func (m *memory) Fill(b *Batch, idx []int32, _ Draw) error {
	b.Resize(m.shape, len(idx))
	for i, n := range idx {
		b.At(m.shape, i).copy(m.all.At(m.shape, int(n)))
	}
	return b.Bags.take(&m.all.Bags, len(m.shape.Slots), m.all.N, idx)
}

func (m *memory) evidence(w io.Writer) {
	_, _ = w.Write(bytesview.Bytes(m.all.Labels)) // hash.Write never fails
	_, _ = w.Write(bytesview.Bytes(m.all.IDs))    // hash.Write never fails
	w.Write(bytesview.Bytes(m.all.Targets))       // hash.Write never fails
	w.Write(bytesview.Bytes(m.all.Values))
	w.Write(bytesview.Bytes(m.all.Bags.Keys))
	w.Write(bytesview.Bytes(m.all.Bags.Offsets))
}

// items is the source of a slice of any type.
type items[T any] struct {
	shape Shape
	all   []T
	put   func(item T, s Sample) error
}

// FromSlice returns the source of a slice of any type. put writes an item to a sample of a batch,
// which is zero before. Several goroutines call put simultaneously, in advance of the step. The
// slice must not change.
func FromSlice[T any](all []T, shape Shape, put func(item T, s Sample) error) (Source, error) {
	if err := shape.validate(); err != nil {
		return nil, err
	}
	if len(shape.Slots) > 0 {
		return nil, errors.New("data: items have no place for bags, whose lengths differ: use FromBatch")
	}
	if put == nil {
		return nil, errors.New("data: no function that puts an item into a batch")
	}
	if len(all) > datafile.MaxElements {
		return nil, fmt.Errorf("data: %d samples: want at most %d", len(all), datafile.MaxElements)
	}
	return &items[T]{shape, all, put}, nil
}

// FromSeq is FromSlice for the items of a sequence, which it loads into memory. A sequence of more
// than `most` items (0: 2^31 - 1) is an error.
func FromSeq[T any](seq iter.Seq[T], most int, shape Shape, put func(item T, s Sample) error) (Source, error) {
	most = min(or(most, datafile.MaxElements), datafile.MaxElements)
	var all []T
	for item := range seq {
		if len(all) == most {
			return nil, fmt.Errorf("data: the sequence has more than %d items, which are held in memory", most)
		}
		all = append(all, item)
	}
	return FromSlice(slices.Clip(all), shape, put)
}

// Len returns the number of items.
func (s *items[T]) Len() int { return len(s.all) }

// Shape returns the shape of a sample.
func (s *items[T]) Shape() Shape { return s.shape }

// Fill implements Source.
func (s *items[T]) Fill(b *Batch, idx []int32, _ Draw) error {
	b.Resize(s.shape, len(idx))
	b.clear()
	for i, n := range idx {
		if err := s.put(s.all[n], b.At(s.shape, i)); err != nil {
			return fmt.Errorf("data: item %d: %w", n, err)
		}
	}
	return nil
}

// clear sets all values to zero.
func (b *Batch) clear() {
	clear(b.Values)
	clear(b.IDs)
	clear(b.Keys)
	clear(b.Labels)
	clear(b.Targets)
}

func (s *items[T]) evidence(w io.Writer) {
	var b Batch
	for i := range s.all {
		if s.Fill(&b, []int32{int32(i)}, Draw{}) == nil {
			(&memory{s.shape, b}).evidence(w)
		}
	}
}
