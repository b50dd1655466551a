package data

import (
	"testing"

	"github.com/ringo-ml/ringo/internal/data/datatest"
	"github.com/ringo-ml/ringo/internal/data/images"
)

// Images of one, two and three channels are normalised channel by channel.
func TestPixels(t *testing.T) {
	stats := images.Statistics{Mean: []float32{0.1307, 0.25, 0.5}, Deviation: []float32{0.3081, 1, 2}}
	for channels := 1; channels <= 3; channels++ {
		im := &images.Images{N: 3, Rows: 2, Cols: 4, Channels: channels, Pixels: datatest.Noise(24 * channels), Labels: []uint8{7, 0, 9}}
		s := images.Statistics{Mean: stats.Mean[:channels], Deviation: stats.Deviation[:channels]}
		p := newPixels(im, s)
		size := 8 * channels
		idx := []int32{2, 0, 2}
		got := fill(t, p, Draw{Augment: true}, idx...)
		for i, n := range idx {
			if got.Labels[i] != int32(im.Labels[n]) {
				t.Errorf("label %d is %d, want %d", i, got.Labels[i], im.Labels[n])
			}
			for j := range size {
				x, c := float32(im.Pixels[int(n)*size+j]), j%channels
				if want := (x/255 - s.Mean[c]) / s.Deviation[c]; got.Values[i*size+j] != want {
					t.Fatalf("%d channels: image %d value %d is %v, want %v", channels, i, j, got.Values[i*size+j], want)
				}
			}
		}
		checkReuse(t, p, Draw{})
	}
}

func TestFillPanicsOutOfRange(t *testing.T) {
	set, _ := images.SyntheticMNIST(1, 2, 0)
	sources := map[string]Source{"pixels": newPixels(set, images.MNISTStatistics())}
	for _, name := range []string{"cifar10", "images", "text", "chars", "criteo"} {
		set, err := Open(name, Config{Dir: Synthetic, TrainLimit: 2, EvalLimit: 1, Vocabulary: 50, ImageSize: 8})
		if err != nil {
			t.Fatal(err)
		}
		sources[name] = set.Train
	}
	for name, s := range sources {
		for _, i := range []int32{2, -1} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: no panic at %d of %d", name, i, s.Len())
					}
				}()
				fill(t, s, Draw{}, i)
			}()
		}
	}
}

func BenchmarkFill(b *testing.B) { // a batch of 64
	im, _ := images.SyntheticMNIST(1, 640, 0)
	p := newPixels(im, images.MNISTStatistics())
	idx := permutation(1, 0, 640, nil)[:64]
	var batch Batch
	b.SetBytes(64 * 784)
	for b.Loop() {
		p.Fill(&batch, idx, Draw{})
	}
}

// A linear classifier learns something, but nowhere near 90 %. The whole set,
// trained to the end (25 epochs), gives it 74 %; a part of it keeps this quick.
func TestSyntheticMNISTIsNotLinear(t *testing.T) {
	train, test := images.SyntheticMNIST(1, 4000, 1000)
	accuracy := linearAccuracy(t, newPixels(train, images.MNISTStatistics()), newPixels(test, images.MNISTStatistics()), 10, 4, 0.0005)
	t.Logf("softmax regression: %.4f", accuracy)
	if accuracy < 0.4 || accuracy > 0.85 {
		t.Errorf("a linear classifier reaches %.4f", accuracy)
	}
}
