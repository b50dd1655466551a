package data

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ringo-ml/ringo/internal/data/prng"
)

// Transform changes a sample in place; the batch owns the slices. Several of the loader's
// goroutines call a Transform simultaneously, ahead of the step, so a Transform must have no state
// between samples; random choices come from r. r is nil in evaluation: augmentation, such as a
// crop, then leaves the sample unchanged. An error ends the run.
type Transform func(s Sample, shape Shape, r *Random) error

// Random is the generator of a sample's random choices. They depend only on seed, epoch and the
// sample's index: a batch has equal bits for any number of threads and after any resumption. Random
// is a source of math/rand/v2; rand.New(r) has further distributions.
type Random struct{ state prng.Rand }

// IntN returns a number in [0, n).
func (r *Random) IntN(n int) int { return r.state.Below(n) }

// Float64 returns a number in [0, 1).
func (r *Random) Float64() float64 { return r.state.Unit() }

// Uint64 returns any 64-bit number.
func (r *Random) Uint64() uint64 { return r.state.Next() }

// Transformed returns a source that applies transforms sequentially, with one Random per sample,
// and can be nested. If s is the result of Split or Head, its underlying source is transformed, so
// that samples keep their indices, and the order of splitting and transforming does not matter. All
// ranks, and a resumed run, need the same transforms: fingerprints detect differences by the
// transforms' results on a few samples.
func Transformed(s Source, transforms ...Transform) Source {
	t := transformed{s, slices.Clone(transforms), 1}
	switch s := s.(type) {
	case head:
		s.Source = Transformed(s.Source, transforms...)
		return s
	case subset:
		s.Source = Transformed(s.Source, transforms...)
		return s
	case transformed:
		t.level += s.level
	}
	return t
}

// transformed applies transforms to a source. It never wraps a head or subset, because both
// overwrite Batch.order, which can be the memory of idx.
type transformed struct {
	Source
	transforms []Transform
	level      uint64 // nesting depth, for different random numbers at each depth; 0: a set's own augmentation
}

func (t transformed) Fill(b *Batch, idx []int32, d Draw) error {
	if err := t.Source.Fill(b, idx, d); err != nil {
		return err
	}
	shape := t.Shape()
	var r *Random
	if d.Augment {
		r = &b.random // in the batch: no allocation
		d.Seed ^= t.level * 0x9e3779b97f4a7c15
	}
	for i, n := range idx {
		if r != nil {
			r.state = drawOf(d, n)
		}
		for k, change := range t.transforms {
			if err := change(b.At(shape, i), shape, r); err != nil {
				return fmt.Errorf("data: sample %d, transform %d: %w", n, k, err)
			}
		}
	}
	b.random = Random{}
	return nil
}

// probed is the number of samples in a fingerprint of transforms.
const probed = 4

// evidence writes, for a fingerprint, the source's evidence and, for transforms of the program,
// their results on the first samples, in evaluation and in training.
func (t transformed) evidence(w io.Writer) {
	if e, ok := t.Source.(interface{ evidence(io.Writer) }); ok {
		e.evidence(w)
	}
	if t.level == 0 {
		return
	}
	var b Batch
	for i := range int32(min(probed, t.Len())) {
		for _, d := range []Draw{{}, {Seed: 1, Epoch: 1, Augment: true}} {
			if err := t.Fill(&b, []int32{i}, d); err != nil {
				continue // the error is returned when the sample is used
			}
			(&memory{all: b}).evidence(w)
		}
	}
}

// planes returns height, width and channels of samples [h, w, c] or [h, w].
func (s Shape) planes() (h, w, c int, err error) {
	switch v := s.Values; len(v) {
	case 2:
		return v[0], v[1], 1, nil
	case 3:
		return v[0], v[1], v[2], nil
	}
	return 0, 0, 0, fmt.Errorf("samples of %v values: want images, of height, width and channels", s.Values)
}

// RandomCrop pads an image by pad pixels on each side and crops a random window of the original
// size. around is the value of padding pixels by channel, such as a normalised black; without
// around, padding pixels are 0.
func RandomCrop(pad int, around ...float32) Transform {
	around = slices.Clone(around)
	return func(s Sample, shape Shape, r *Random) error {
		h, w, c, err := shape.planes()
		switch {
		case err != nil:
			return err
		case pad < 0 || len(around) != 0 && len(around) != c:
			return fmt.Errorf("a crop with a padding of %d pixels of %d channels: want at least 0, and %d channels or none", pad, len(around), c)
		case r == nil:
			return nil
		}
		dy, dx := r.state.Between(-pad, pad), r.state.Between(-pad, pad)
		shift(s.Values, [3]int{h, w, c}, dy, dx, around)
		return nil
	}
}

// shift moves an image by -dy rows and -dx columns. The order of rows is such that no row is
// overwritten before it is moved.
func shift(v []float32, size [3]int, dy, dx int, around []float32) {
	h, w, c := size[0], size[1], size[2]
	lo, hi := min(max(-dx, 0), w), max(min(w-dx, w), 0) // window columns inside the image
	for i := range h {
		y := i
		if dy < 0 {
			y = h - 1 - i
		}
		row, sy := v[y*w*c:][:w*c], y+dy
		if sy < 0 || sy >= h || lo >= hi {
			fillRow(row, around)
			continue
		}
		copy(row[lo*c:hi*c], v[(sy*w+lo+dx)*c:(sy*w+hi+dx)*c])
		fillRow(row[:lo*c], around)
		fillRow(row[hi*c:], around)
	}
}

// fillRow sets all pixels of a row to pixel.
func fillRow(row, pixel []float32) {
	if len(pixel) == 0 {
		clear(row)
		return
	}
	for i := 0; i < len(row); i += len(pixel) {
		copy(row[i:], pixel)
	}
}

// RandomFlip mirrors an image left to right with probability 1/2.
func RandomFlip() Transform {
	return func(s Sample, shape Shape, r *Random) error {
		h, w, c, err := shape.planes()
		if err != nil || r == nil || r.state.Below(2) == 0 {
			return err
		}
		for y := range h {
			mirrorRow(s.Values[y*w*c:][:w*c], c)
		}
		return nil
	}
}

// Normalise maps each value to (x - mean)/deviation, in training and evaluation, with one mean and
// deviation or one per channel, the last dimension.
func Normalise(mean, deviation []float32) Transform {
	mean, deviation = slices.Clone(mean), slices.Clone(deviation)
	return func(s Sample, shape Shape, _ *Random) error {
		n := len(mean)
		if n == 0 || n != len(deviation) || n > 1 && (len(shape.Values) == 0 || n != shape.Values[len(shape.Values)-1]) {
			return fmt.Errorf("%d means and %d deviations of samples of %v values: want one of each, or one for each channel", n, len(deviation), shape.Values)
		}
		if slices.Contains(deviation, 0) {
			return errors.New("deviation 0: must not be 0, values are divided by it")
		}
		for i := 0; i < len(s.Values); i += n {
			for c, x := range s.Values[i : i+n] {
				s.Values[i+c] = (x - mean[c]) / deviation[c]
			}
		}
		return nil
	}
}

// Map applies a function to a sample's values, in training and evaluation.
func Map(change func(values []float32)) Transform {
	return func(s Sample, _ Shape, _ *Random) error {
		change(s.Values)
		return nil
	}
}

// mirrorRow reverses a row of pixels with c values each.
func mirrorRow(row []float32, c int) {
	for i, j := 0, len(row)-c; i < j; i, j = i+c, j-c {
		for k := range c {
			row[i+k], row[j+k] = row[j+k], row[i+k]
		}
	}
}
