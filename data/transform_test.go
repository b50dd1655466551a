package data

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/data/datatest"
	"github.com/ringo-ml/ringo/internal/data/images"
	"github.com/ringo-ml/ringo/internal/leakcheck"
)

// Runs see the batches that they saw before transformations were functions: crops and flips of CIFAR-10 have a fixed hash.
func TestAugmentationHasItsBits(t *testing.T) {
	set, err := Open("cifar10", Config{Dir: Synthetic, TrainLimit: 40, EvalLimit: 4})
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	var b Batch
	for epoch := range 3 {
		for _, seed := range []uint64{1, 77} {
			if err := set.Train.Fill(&b, permutation(seed, epoch, 40, nil), Draw{Seed: seed, Epoch: epoch, Augment: true}); err != nil {
				t.Fatal(err)
			}
			h.Write(bytesview.Bytes(b.Values))
		}
	}
	if got, want := hex.EncodeToString(h.Sum(nil)[:8]), "dc909b44ca1d69de"; got != want {
		t.Errorf("batches have the hash %s, want %s", got, want)
	}
}

// drawn are n samples of random values, some of them equal to nothing else.
func drawn(t *testing.T, n int, shape ...int) Source {
	t.Helper()
	b := Batch{N: n, Values: make([]float32, n*Shape{Values: shape}.Size()), Labels: make([]int32, n)}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b.Values {
		b.Values[i] = float32(r.NormFloat64())
	}
	for i := range b.Labels {
		b.Labels[i] = int32(i)
	}
	s, err := FromBatch(Shape{Values: shape, Labels: 1}, b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The naive twin of a crop and a flip by a sample's place, of more rows or columns than there are, too, in images with and without
// channels.
func TestCropAndFlip(t *testing.T) {
	for _, shape := range [][]int{{5, 7, 3}, {4, 3}, {1, 1, 2}, {2, 6, 1}} {
		s := drawn(t, 3, shape...)
		h, w, c, err := s.Shape().planes()
		if err != nil {
			t.Fatal(err)
		}
		before := fill(t, s, Draw{}, 2)
		for _, around := range [][]float32{nil, []float32{7, 8, 9}[:c]} {
			changed := Transformed(s, RandomCrop(3, around...), RandomFlip())
			for epoch := range 60 {
				d := Draw{Seed: 5, Epoch: epoch, Augment: true}
				got := fill(t, changed, d, 1, 2).Values[len(before.Values):]
				r := drawOf(Draw{Seed: d.Seed ^ 0x9e3779b97f4a7c15, Epoch: epoch}, 2)
				dy, dx, mirrored := r.Between(-3, 3), r.Between(-3, 3), r.Below(2) == 1
				for i, v := range got {
					y, x, k := i/(w*c), i/c%w, i%c
					if mirrored {
						x = w - 1 - x
					}
					want := float32(0)
					if around != nil {
						want = around[k]
					}
					if y, x := y+dy, x+dx; y >= 0 && y < h && x >= 0 && x < w {
						want = before.Values[(y*w+x)*c+k]
					}
					if v != want {
						t.Fatalf("%v moved by %d, %d, mirrored %v: value %d is %v, want %v", shape, dy, dx, mirrored, i, v, want)
					}
				}
			}
			if got := fill(t, changed, Draw{Seed: 5, Epoch: 3}, 2); !slices.Equal(got.Values, before.Values) {
				t.Errorf("%v: a sample to be evaluated was changed", shape)
			}
		}
	}
}

// Normalise has the bits of the tables by which the program's own sets are normalised, in training and in evaluation.
func TestNormaliseHasTheBitsOfTables(t *testing.T) {
	for _, stats := range []images.Statistics{images.MNISTStatistics(), images.CIFARStatistics()} {
		c := len(stats.Mean)
		im := &images.Images{N: 2, Rows: 16, Cols: 16, Channels: c, Pixels: datatest.Noise(2 * 256 * c), Labels: []uint8{1, 2}}
		b := Batch{N: 2, Values: make([]float32, len(im.Pixels)), Labels: []int32{1, 2}}
		for i, x := range im.Pixels {
			b.Values[i] = float32(x)
		}
		s, err := FromBatch(Shape{Values: []int{16, 16, c}, Labels: 1}, b)
		if err != nil {
			t.Fatal(err)
		}
		s = Transformed(s, Map(func(v []float32) {
			for i := range v {
				v[i] /= 255
			}
		}), Normalise(stats.Mean, stats.Deviation))
		want := fill(t, newPixels(im, stats), Draw{}, 1, 0)
		for _, augment := range []bool{false, true} {
			if got := fill(t, s, Draw{Augment: augment}, 1, 0); !slices.Equal(got.Values, want.Values) || got.Labels[0] != 2 {
				t.Errorf("%d channels, training %v: other values", c, augment)
			}
		}
	}
}

// noisy is a transform of one's own that changes labels, too.
func noisy(s Sample, _ Shape, r *Random) error {
	if r == nil {
		return nil
	}
	for i := range s.Values {
		s.Values[i] += float32(r.Float64()) - 0.5
	}
	s.Labels[0] += 100*int32(r.IntN(9)) + 1000*int32(rand.New(r).IntN(5))
	return nil
}

// Whatever the number of threads, in every epoch and from every step, transformed samples have the bits of a source that is asked for
// each of them alone; splitting and transforming change places; and two sources that draw, one upon the other, do not draw alike.
func TestTransformedIsDeterministic(t *testing.T) {
	leakcheck.Check(t)
	const n = 60
	all := drawn(t, n, 4, 4, 2)
	change := []Transform{RandomCrop(1, 3, 4), noisy, RandomFlip()}
	train, _, err := Split(all, 0.3)
	if err != nil {
		t.Fatal(err)
	}
	after, before := Transformed(Head(train, 30), change...), Transformed(all, change...)
	if before, _, err = Split(before, 0.3); err != nil {
		t.Fatal(err)
	}
	before = Head(before, 30)
	for _, threads := range []int{0, 1, 2, 5} {
		sampler, err := NewSampler(SamplerConfig{N: 30, Batch: 4, Size: 1, Seed: 8})
		if err != nil {
			t.Fatal(err)
		}
		l, err := NewLoader(LoaderConfig{Source: after, Sampler: sampler, Seed: 6, Augment: true, Workers: threads})
		if err != nil {
			t.Fatal(err)
		}
		for epoch := range 3 {
			order := permutation(8, epoch, 30, nil)
			l.Start(epoch)
			for _, from := range []int{0, 5, 2} { // in the middle, as a resumed run begins
				l.Seek(from)
				for k, got := range steps(t, l) {
					for i := range got.N {
						one := fill(t, before, Draw{Seed: 6, Epoch: epoch, Augment: true}, order[(from+k)*4+i])
						if at := got.At(all.Shape(), i); !slices.Equal(at.Values, one.Values) || at.Labels[0] != one.Labels[0] {
							t.Fatalf("%d threads, epoch %d, step %d: sample %d is another", threads, epoch, from+k, i)
						}
					}
				}
			}
		}
		l.Close()
	}
	var numbers []uint64
	draw := func(_ Sample, _ Shape, r *Random) error { numbers = append(numbers, r.Uint64()); return nil }
	fill(t, Transformed(Transformed(Head(Transformed(all, draw), 9), draw), draw), Draw{Augment: true}, 0)
	own := drawOf(Draw{}, 0)
	numbers = append(numbers, own.Next())
	slices.Sort(numbers)
	if len(slices.Compact(numbers)) != 4 {
		t.Errorf("of three sources one upon another, and the set's own, two draw alike: %x", numbers)
	}
	named := func(s Source) [32]byte { return (&Dataset{Train: s}).Fingerprint() }
	if own := Transformed(all, change...); named(own) == named(all) || named(own) != named(Transformed(all, change...)) || named(Head(own, 9)) == named(Head(all, 9)) {
		t.Error("a set does not know its transforms")
	}
}

// What a transform cannot do is an error that says of which sample, and of what shape.
func TestTransformsRefuse(t *testing.T) {
	own := errors.New("mine")
	flat, square := drawn(t, 3, 8), drawn(t, 3, 4, 4, 2)
	for _, c := range []struct {
		s    Source
		t    Transform
		want string
	}{
		{flat, RandomCrop(1), "samples of [8] values: want images"},
		{flat, RandomFlip(), "samples of [8] values: want images"},
		{square, RandomCrop(-1), "a padding of -1 pixels"},
		{square, RandomCrop(1, 1, 2, 3), "of 3 channels: want at least 0, and 2 channels"},
		{square, Normalise([]float32{1, 2, 3}, []float32{1, 2, 3}), "3 means and 3 deviations of samples of [4 4 2]"},
		{square, Normalise([]float32{1}, nil), "1 means and 0 deviations"},
		{flat, Normalise([]float32{1}, []float32{0}), "deviation 0"},
		{flat, func(Sample, Shape, *Random) error { return own }, "mine"},
	} {
		for _, augment := range []bool{false, true} {
			err := Transformed(c.s, Map(func([]float32) {}), c.t).Fill(new(Batch), []int32{2}, Draw{Augment: augment})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "sample 2, transform 1") || c.want == "mine" && !errors.Is(err, own) {
				t.Errorf("%v, want %q", err, c.want)
			}
		}
	}
}
