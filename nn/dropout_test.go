package nn

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// dropped runs dropout of p on ones of the given tape and returns the result
// and the gradient of its sum.
func dropped(t *testing.T, tape *Tape, seed uint64, n int, p float64) (y, dx []float32) {
	t.Helper()
	x := NewTensor(n)
	x.needs = true
	c := make([]float32, n)
	for i := range n {
		x.Data[i], c[i] = 1, 1
	}
	tape.Reset()
	tape.SetSeed(seed)
	out := tape.Dropout(x, p)
	tape.Backward(tape.dot(out, c), nil)
	return out.Data, x.gradient()
}

func TestDropoutDropsAndScales(t *testing.T) {
	for _, p := range []float64{0.1, 0.5, 0.9} {
		tape := NewTape(TapeConfig{})
		const n = 100003
		y, dx := dropped(t, tape, 7, n, p)
		kept := 0
		for i, v := range y {
			if v != 0 && v != float32(1/(1-p)) {
				t.Fatalf("p=%v: y[%d] = %v", p, i, v)
			}
			if v != 0 {
				kept++
			}
		}
		if !slices.Equal(y, dx) {
			t.Errorf("p=%v: the gradient is dropped elsewhere than the value", p)
		}
		if sigma := math.Sqrt(n * p * (1 - p)); math.Abs(float64(kept)-n*(1-p)) > 5*sigma {
			t.Errorf("p=%v: kept %d of %d", p, kept, n)
		}
	}
}

func TestDropoutIsAFunctionOfSeedPlaceAndIndex(t *testing.T) {
	const n = 3*dropoutPart + 5
	tape := NewTape(TapeConfig{})
	y, _ := dropped(t, tape, 7, n, 0.5)
	want := slices.Clone(y)
	for _, k := range simd.Levels() {
		for threads := 1; threads <= 3; threads++ {
			other := NewTape(TapeConfig{Kernels: k, Threads: threads})
			if y, _ := dropped(t, other, 7, n, 0.5); !slices.Equal(y, want) {
				t.Errorf("%s with %d threads drops other values", k.Name(), threads)
			}
			other.Close()
		}
	}
	if y, _ := dropped(t, tape, 8, n, 0.5); slices.Equal(y, want) {
		t.Error("another seed drops the same values")
	}
	x := NewTensor(n)
	copy(x.Data, random(rand.New(rand.NewPCG(1, 1)), n))
	tape.Reset()
	a, b := tape.Dropout(x, 0.5), tape.Dropout(x, 0.5)
	if slices.Equal(a.Data, b.Data) {
		t.Error("two operations of one recording drop the same values")
	}
	tape.ResetEval()
	if y := tape.Dropout(x, 0.5); !slices.Equal(y.Data, x.Data) || !slices.Equal(y.Shape, x.Shape) {
		t.Error("an evaluation drops values")
	}
	was := slices.Clone(x.Data)
	if y, _ := dropped(t, tape, 7, n, 0.5); !slices.Equal(y, want) || !slices.Equal(x.Data, was) {
		t.Error("after an evaluation other values are dropped, or those of the evaluation's input")
	}
}

func TestDropoutWantsAProbability(t *testing.T) {
	for _, p := range []float64{-0.1, 1, math.NaN()} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("p=%v: no panic", p)
				}
			}()
			NewTape(TapeConfig{}).Dropout(NewTensor(3), p)
		}()
	}
}
