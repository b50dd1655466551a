package images

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"testing"
)

func digest(sets ...*Images) string {
	h := sha256.New()
	for _, im := range sets {
		h.Write(im.Pixels)
		h.Write(im.Labels)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// The same seed draws the same bytes on every architecture and in every
// version: results would not be comparable otherwise.
func TestSyntheticMNISTGolden(t *testing.T) {
	for _, c := range []struct {
		seed uint64
		want string
	}{
		{1, "33006f9e48660249d2b61b83ac8c9ea0cc32b51ddfd35404f839b44577796a08"},
		{math.MaxUint64, "5feae6a07ba455b974f46d64bfe507a1ede338f4dfb7da5552a88983e3c240aa"},
	} {
		train, test := SyntheticMNIST(c.seed, 1000, 200)
		if got := digest(train, test); got != c.want {
			t.Errorf("seed %d: %s, want %s", c.seed, got, c.want)
		}
	}
}

func TestSyntheticMNISTShape(t *testing.T) {
	train, test := SyntheticMNIST(5, 3000, 500)
	if train.N != 3000 || test.N != 500 || train.Size() != 784 || len(train.Pixels) != 3000*784 || len(test.Labels) != 500 {
		t.Fatalf("%d + %d images of %d", train.N, test.N, train.Size())
	}
	var count [10]int
	for _, l := range train.Labels {
		count[l]++
	}
	for l, c := range count {
		if c < 230 || c > 370 { // 300, about 4 deviations
			t.Errorf("%d images of digit %d of 3000", c, l)
		}
	}
	if bytes.Equal(train.Pixels[:500*784], test.Pixels) {
		t.Error("the test set is the training set")
	}
	other, _ := SyntheticMNIST(6, 3000, 0)
	if bytes.Equal(train.Pixels, other.Pixels) {
		t.Error("the seed does not matter")
	}
	none, empty := SyntheticMNIST(5, 0, 0)
	if none.N+empty.N != 0 {
		t.Error("images of nothing")
	}
}

// A smaller set is the beginning of a larger one, and no image is blank, full
// or like another.
func TestSyntheticMNISTImages(t *testing.T) {
	large, _ := SyntheticMNIST(5, 2000, 0)
	small, _ := SyntheticMNIST(5, 300, 0)
	if !bytes.HasPrefix(large.Pixels, small.Pixels) || !bytes.HasPrefix(large.Labels, small.Labels) {
		t.Error("a smaller set is not a prefix")
	}
	seen := map[string]int{}
	for i := range large.N {
		image := large.Pixels[i*784:][:784]
		ink := 0
		for _, x := range image {
			if x > 100 {
				ink++
			}
		}
		if ink < 12 || ink > 350 {
			t.Errorf("image %d (a %d) has %d dark pixels", i, large.Labels[i], ink)
		}
		if j, ok := seen[string(image)]; ok {
			t.Errorf("images %d and %d are the same", j, i)
		}
		seen[string(image)] = i
	}
}

func BenchmarkSyntheticMNIST(b *testing.B) {
	for b.Loop() {
		SyntheticMNIST(1, 6000, 1000) // a tenth of the set
	}
}
