package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// winogradCase covers both tile sizes, whole and cut tiles, blocks of tiles
// and panels of weights, sums by part and by block.
var winogradCases = []struct {
	n, h, w, in, out, pad int
	bias, relu            bool
}{
	{2, 8, 8, 16, 16, 1, true, true},
	{3, 7, 9, 32, 16, 1, false, false},
	{1, 5, 4, 16, 48, 0, true, false},
	{2, 6, 3, 16, 16, 2, false, true},
	{5, 2, 2, 32, 64, 1, true, false},
	{2, 1, 1, 16, 16, 1, true, false},
	{9, 32, 32, 16, 16, 1, true, true},  // several blocks
	{2, 4, 4, 128, 256, 1, true, true},  // panels, sums by block
	{1, 7, 7, 256, 272, 1, false, true}, // an odd number of panels
	{3, 2, 2, 256, 256, 1, true, false},
	{3, 9, 8, 64, 64, 1, true, false}, // rounded points with bf16
	{2, 4, 4, 320, 288, 1, true, false},
}

// convRun is a convolution over random values: its result and gradients.
func convRun(tape *Tape, algo convAlgorithm, c int, twice bool) (y, dx, dw, db []float32) {
	w := winogradCases[c]
	r := rand.New(rand.NewPCG(uint64(c), 9))
	ps := NewParams(1)
	fill := func(_ *rand.Rand, data []float32) { copy(data, random(r, len(data))) }
	l := Layer{W: ps.New("w", fill, 3, 3, w.in, w.out)}
	if w.bias {
		l.B = ps.New("b", fill, w.out)
	}
	x := NewTensor(w.n, w.h, w.w, w.in)
	copy(x.Data, random(r, x.Len()))
	x.needs = true
	cfg := Conv{Pad: w.pad}
	if w.relu {
		cfg.Activation = ReLU
	}
	var weights []float32
	loss := func(t *Tape) *Tensor {
		out := t.Conv2D(x, l, cfg)
		o := t.ops[t.n-1].(*convOp)
		if algo != nil {
			o.algo = algo
			o.algo.forward(o, t)
		}
		if weights == nil {
			weights = random(r, out.Len())
		}
		y = out.Data
		return t.dot(out, weights)
	}
	if err := ps.Arrange(loss); err != nil {
		panic(err)
	}
	tape.Reset()
	if twice { // the second Backward adds to the first's gradients
		tape.Backward(loss(tape), nil)
		tape.Reset()
	}
	tape.Backward(loss(tape), func(int) {})
	if w.bias {
		db = l.B.Grad
	}
	return y, x.gradient(), l.W.Grad, db
}

func TestWinogradAgainstImplicitGEMM(t *testing.T) {
	for c, w := range winogradCases {
		t.Run(fmt.Sprint(w), func(t *testing.T) {
			for _, k := range simd.Levels() {
				if k.Name() == "portable" && (w.in*w.out > 1<<14 || testing.Short()) {
					continue
				}
				for _, twice := range []bool{false, true} {
					tape := NewTape(TapeConfig{Kernels: k, Threads: 2})
					var got, want [4][]float32
					got[0], got[1], got[2], got[3] = convRun(tape, nil, c, twice)
					if _, ok := tape.ops[0].(*convOp).algo.(winograd); !ok {
						t.Fatal("the convolution did not use Winograd")
					}
					for i := range got {
						got[i] = append([]float32(nil), got[i]...)
					}
					want[0], want[1], want[2], want[3] = convRun(tape, implicitGEMM{}, c, twice)
					for i, name := range []string{"y", "dx", "dw", "db"} {
						if d := distance(got[i], want[i]); !(d < 3e-5) {
							t.Errorf("%s: %s is off by %.1e of its largest value", k.Name(), name, d)
						}
					}
					tape.Close()
				}
			}
		})
	}
}

// distance is the largest difference, in terms of the largest value of b.
func distance(a, b []float32) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	worst, most := 0.0, 0.0
	for i := range b {
		worst = max(worst, math.Abs(float64(a[i])-float64(b[i])))
		most = max(most, math.Abs(float64(b[i])))
	}
	if most == 0 {
		return worst
	}
	return worst / most
}

// Whatever the number of threads, the bits are the same, and a steady step
// allocates nothing.
func TestWinogradThreads(t *testing.T) {
	for c, w := range winogradCases {
		var first [4][]float32
		for _, threads := range []int{1, 2, 3, 5} {
			tape := NewTape(TapeConfig{Threads: threads})
			var got [4][]float32
			got[0], got[1], got[2], got[3] = convRun(tape, nil, c, false)
			if threads == 1 {
				first = got
			}
			for i := range got {
				if d := distance(got[i], first[i]); d != 0 {
					t.Errorf("%v: with %d threads result %d is off by %v", w, threads, i, d)
				}
			}
			tape.Close()
		}
	}
}
