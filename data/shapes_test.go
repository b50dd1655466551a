package data

import (
	"math"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/images"
)

// linearAccuracy trains a softmax regression on a source's values and returns
// its accuracy on another's, as a share.
func linearAccuracy(t *testing.T, train, eval Source, classes, epochs int, lr float64) float64 {
	t.Helper()
	inputs := train.Shape().Size()
	w := make([]float64, classes*inputs)
	p := make([]float64, classes)
	score := func(x []float32) (best int) {
		for c := range p {
			p[c] = 0
			for j, v := range x {
				p[c] += w[c*inputs+j] * float64(v)
			}
			if p[c] > p[best] {
				best = c
			}
		}
		return best
	}
	a, b := all(t, train), all(t, eval)
	for range epochs {
		for i := range a.N {
			x := a.Values[i*inputs:][:inputs]
			top, sum := p[score(x)], 0.0
			for c, v := range p {
				p[c] = math.Exp(v - top)
				sum += p[c]
			}
			for c, v := range p {
				g := v / sum
				if c == int(a.Labels[i]) {
					g--
				}
				for j, v := range x {
					w[c*inputs+j] -= lr * g * float64(v)
				}
			}
		}
	}
	right := 0
	for i := range b.N {
		if score(b.Values[i*inputs:][:inputs]) == int(b.Labels[i]) {
			right++
		}
	}
	return float64(right) / float64(b.N)
}

func TestSyntheticCIFAR(t *testing.T) {
	open := func(seed uint64, train int) *Dataset {
		set, err := Open("cifar10", Config{Dir: Synthetic, Seed: seed, TrainLimit: train, EvalLimit: 300})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	set := open(1, 1500)
	accuracy := linearAccuracy(t, set.Train, set.Eval, 10, 3, 0.0002)
	t.Logf("a linear classifier: %.3f", accuracy)
	if accuracy < 0.15 || accuracy > 0.75 { // chance is 0.1
		t.Errorf("a linear classifier reaches %.3f", accuracy)
	}
	if small := all(t, open(1, 100).Train); !slices.Equal(small.Values, all(t, set.Train).Values[:len(small.Values)]) {
		t.Error("a smaller set is not a prefix")
	}
	if slices.Equal(all(t, open(2, 10).Train).Values, all(t, open(1, 10).Train).Values) {
		t.Error("the seed does not matter")
	}
	for class := range 10 { // no two classes draw the same points, and each is its own mirror image
		for other := range class {
			same := true
			for i := range 25 * 25 {
				x, y := i%25-12, i/25-12
				same = same && images.InShape(class, x, y, 9) == images.InShape(other, x, y, 9)
				if images.InShape(class, x, y, 9) != images.InShape(class, -x, y, 9) {
					t.Fatalf("class %d is not symmetric", class)
				}
			}
			if same {
				t.Errorf("classes %d and %d are the same", class, other)
			}
		}
	}
}

func TestSyntheticImages(t *testing.T) {
	set, err := Open("imagenet", Config{Dir: Synthetic, Seed: 1, ImageSize: 12, TrainLimit: 2000, EvalLimit: 300})
	if err != nil {
		t.Fatal(err)
	}
	accuracy := linearAccuracy(t, set.Train, set.Eval, set.Classes, 1, 0.001)
	t.Logf("a linear classifier: %.3f", accuracy)
	if accuracy < 0.04 { // chance is 0.01
		t.Errorf("a linear classifier reaches %.3f", accuracy)
	}
	checkReuse(t, set.Train, Draw{Augment: true})
	if a, b := fill(t, set.Train, Draw{}, 5, 9), fill(t, set.Train, Draw{Epoch: 3, Augment: true}, 9); !slices.Equal(a.Values[432:], b.Values) {
		t.Error("an image depends on the batch")
	}
	full, err := Open("images", Config{Dir: Synthetic})
	if err != nil || full.Train.Len() != 10000 || full.Eval.Len() != 1000 || full.Train.Shape().Size() != 224*224*3 {
		t.Errorf("%+v, %v", full, err)
	}
}

func BenchmarkSyntheticImage(b *testing.B) { // one of 224x224
	set, err := Open("images", Config{Dir: Synthetic})
	if err != nil {
		b.Fatal(err)
	}
	var batch Batch
	for b.Loop() {
		set.Train.Fill(&batch, []int32{7}, Draw{})
	}
}
