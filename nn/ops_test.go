package nn

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// dotOp is the loss of these tests: the sum of c[i]*x[i].
type dotOp struct {
	x *Tensor
	c []float32
	y Tensor
}

func (o *dotOp) operands() ([4]*Tensor, [4]*Param) { return [4]*Tensor{o.x}, [4]*Param{} }
func (o *dotOp) result() *Tensor                   { return &o.y }

func (t *Tape) dot(x *Tensor, c []float32) *Tensor {
	o := record[dotOp](t)
	o.x, o.c = x, c
	y := t.begin(o, 1)
	s := 0.0
	for i, v := range x.Data {
		s += float64(v) * float64(c[i])
	}
	y.Data[0] = float32(s)
	return y
}

func (o *dotOp) backward(t *Tape) {
	dx := t.into(o.x)
	copy(dx, o.c)
	t.merge(o.x, dx)
}

// gap fills x with values no two of which are closer than 0.02, nor closer to
// zero: central differences with a step below 0.01 meet no kink.
func gap(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i, p := range r.Perm(n) {
		x[i] = 0.02 * (float32(p-n/2) + 0.5)
	}
	return x
}

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = 2*r.Float32() - 1
	}
	return x
}

func wide(x []float32) []float64 {
	if x == nil {
		return nil
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// opCase is an operation of an input and, perhaps, a weight and a bias.
type opCase struct {
	name    string
	x, w, b []int // shapes, nil for none
	kinks   bool  // differentiable only away from kinks
	run     func(t *Tape, x *Tensor, l Layer) *Tensor
	twin    twin
}

// opCases are all operations, which run through the same tests.
var opCases = slices.Concat(layerCases, broadcastCases, reduceCases)

var layerCases = []opCase{
	{"relu", []int{3, 7}, nil, nil, true,
		func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.ReLU(x) },
		func(x, _, _ []float64) []float64 {
			y := make([]float64, len(x))
			for i, v := range x {
				y[i] = max(v, 0)
			}
			return y
		}},
	{"add", []int{3, 7}, nil, nil, false,
		func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.Add(x, t.Add(x, x)) },
		func(x, _, _ []float64) []float64 {
			y := make([]float64, len(x))
			for i, v := range x {
				y[i] = 3 * v
			}
			return y
		}},
	{"reshape twice", []int{4, 3, 2}, nil, nil, false,
		func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.Add(t.Flatten(x), t.Reshape(x, 4, 6)) },
		func(x, _, _ []float64) []float64 {
			y := make([]float64, len(x))
			for i, v := range x {
				y[i] = 2 * v
			}
			return y
		}},
	{"dense", []int{5, 7}, []int{19, 7}, []int{19}, false,
		func(t *Tape, x *Tensor, l Layer) *Tensor { return t.Dense(x, l, Identity) },
		twinDense(5, 7, 19, Identity)},
	{"dense without bias", []int{1, 33}, []int{40, 33}, nil, false,
		func(t *Tape, x *Tensor, l Layer) *Tensor { return t.Dense(x, l, Identity) },
		twinDense(1, 33, 40, Identity)},
	{"dense and relu", []int{3, 4}, []int{9, 4}, []int{9}, true,
		func(t *Tape, x *Tensor, l Layer) *Tensor { return t.Dense(x, l, ReLU) },
		twinDense(3, 4, 9, ReLU)},
	{"convolution", []int{3, 7, 9, 2}, []int{3, 3, 2, 5}, []int{5}, false,
		func(t *Tape, x *Tensor, l Layer) *Tensor { return t.Conv2D(x, l, Conv{}) },
		twinConv(3, 2, 7, 9, 5, 3, 1, 0, Identity)},
	{"convolution with stride and padding", []int{2, 6, 5, 3}, []int{3, 3, 3, 4}, nil, false,
		func(t *Tape, x *Tensor, l Layer) *Tensor { return t.Conv2D(x, l, Conv{Stride: 2, Pad: 1}) },
		twinConv(2, 3, 6, 5, 4, 3, 2, 1, Identity)},
	{"convolution of many samples", []int{19, 5, 5, 1}, []int{5, 5, 1, 2}, []int{2}, false,
		func(t *Tape, x *Tensor, l Layer) *Tensor { return t.Conv2D(x, l, Conv{}) },
		twinConv(19, 1, 5, 5, 2, 5, 1, 0, Identity)},
	{"convolution and relu", []int{2, 5, 6, 2}, []int{2, 2, 2, 3}, []int{3}, true,
		func(t *Tape, x *Tensor, l Layer) *Tensor { return t.Conv2D(x, l, Conv{Activation: ReLU}) },
		twinConv(2, 2, 5, 6, 3, 2, 1, 0, ReLU)},
	{"convolution, max-pool and relu", []int{2, 8, 9, 2}, []int{3, 3, 2, 3}, []int{3}, true,
		func(t *Tape, x *Tensor, l Layer) *Tensor {
			return t.Conv2D(x, l, Conv{MaxPool2: true, Activation: ReLU})
		},
		func(x, w, b []float64) []float64 {
			return twinPool(2, 6, 7, 3, ReLU)(twinConv(2, 2, 8, 9, 3, 3, 1, 0, Identity)(x, w, b), nil, nil)
		}},
	{"convolution of one pixel", []int{2, 5, 3, 17}, []int{1, 1, 17, 20}, []int{20}, false,
		func(t *Tape, x *Tensor, l Layer) *Tensor { return t.Conv2D(x, l, Conv{}) },
		twinConv(2, 17, 5, 3, 20, 1, 1, 0, Identity)},
	{"convolution of one pixel with stride", []int{2, 5, 4, 6}, []int{1, 1, 6, 5}, nil, false,
		func(t *Tape, x *Tensor, l Layer) *Tensor { return t.Conv2D(x, l, Conv{Stride: 2}) },
		twinConv(2, 6, 5, 4, 5, 1, 2, 0, Identity)},
	{"two branches", []int{2, 3}, []int{3, 3}, []int{3}, false, // x and l twice
		func(t *Tape, x *Tensor, l Layer) *Tensor {
			return t.Add(t.Dense(t.Dense(x, l, Identity), l, Identity), x)
		},
		func(x, w, b []float64) []float64 {
			d := twinDense(2, 3, 3, Identity)
			y := d(d(x, w, b), w, b)
			for i := range y {
				y[i] += x[i]
			}
			return y
		}},
}

// scene is an operation with operands, ready to run.
type scene struct {
	opCase
	x      *Tensor
	l      Layer
	params *Params
	c      []float32 // the loss is c·y
}

func newScene(t *testing.T, o opCase) *scene {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	s := &scene{opCase: o, params: NewParams(3), x: NewTensor(o.x...)}
	s.x.needs = true
	copy(s.x.Data, gap(r, s.x.Len()))
	fill := func(_ *rand.Rand, data []float32) { copy(data, random(r, len(data))) }
	if o.w != nil {
		s.l.W = s.params.New("w", fill, o.w...)
	}
	if o.b != nil {
		s.l.B = s.params.New("b", fill, o.b...)
	}
	err := s.params.Arrange(func(t *Tape) *Tensor {
		y := o.run(t, s.x, s.l)
		s.c = random(r, y.Len())
		return t.dot(y, s.c)
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *scene) forward(t *Tape) (y, loss *Tensor) {
	t.Reset()
	y = s.run(t, s.x, s.l)
	return y, t.dot(y, s.c)
}

// operands returns the values that the loss depends on, by name, with their
// gradients.
func (s *scene) operands() map[string][2][]float32 {
	m := map[string][2][]float32{"x": {s.x.Data, s.x.gradient()}}
	if s.l.W != nil {
		m["w"] = [2][]float32{s.l.W.Data, s.l.W.Grad}
	}
	if s.l.B != nil {
		m["b"] = [2][]float32{s.l.B.Data, s.l.B.Grad}
	}
	return m
}

// naiveLoss is the loss by the twin, with operand name's element i moved by d.
func (s *scene) naiveLoss(name string, i int, d float64) float64 {
	var args [3][]float64
	args[0] = wide(s.x.Data)
	if s.l.W != nil {
		args[1] = wide(s.l.W.Data)
	}
	if s.l.B != nil {
		args[2] = wide(s.l.B.Data)
	}
	args[map[string]int{"x": 0, "w": 1, "b": 2}[name]][i] += d
	sum := 0.0
	for j, v := range s.twin(args[0], args[1], args[2]) {
		sum += v * float64(s.c[j])
	}
	return sum
}

func near(a, b, tolerance float64) bool {
	return math.Abs(a-b) <= tolerance*(1+max(math.Abs(a), math.Abs(b)))
}

func eachTape(t *testing.T, f func(t *testing.T, tape *Tape)) {
	for _, k := range simd.Levels() {
		t.Run(k.Name(), func(t *testing.T) {
			tape := NewTape(TapeConfig{Kernels: k, Threads: 2})
			defer tape.Close()
			f(t, tape)
		})
	}
}

func TestOpsAgainstTwins(t *testing.T) {
	for _, o := range opCases {
		t.Run(o.name, func(t *testing.T) {
			slopes := map[string][]float64{} // by the twin, found once for all levels
			eachTape(t, func(t *testing.T, tape *Tape) {
				s := newScene(t, o)
				y, loss := s.forward(tape)
				var w, b []float64
				if s.l.W != nil {
					w = wide(s.l.W.Data)
				}
				if s.l.B != nil {
					b = wide(s.l.B.Data)
				}
				for i, v := range s.twin(wide(s.x.Data), w, b) {
					if !near(v, float64(y.Data[i]), 1e-5) {
						t.Fatalf("y[%d] = %v, the twin has %v", i, y.Data[i], v)
					}
				}
				tape.Backward(loss, func(int) {})
				for name, v := range s.operands() {
					for i := range v[0] {
						if i == len(slopes[name]) {
							const h = 1e-4
							slopes[name] = append(slopes[name], (s.naiveLoss(name, i, h)-s.naiveLoss(name, i, -h))/(2*h))
						}
						if !near(slopes[name][i], float64(v[1][i]), 1e-4) {
							t.Fatalf("d%s[%d] = %v, the twin has %v", name, i, v[1][i], slopes[name][i])
						}
					}
				}
			})
		})
	}
}

// The operation's own slopes: what Backward says is how the loss really moves.
func TestOpsAgainstFiniteDifferences(t *testing.T) {
	for _, o := range opCases {
		t.Run(o.name, func(t *testing.T) {
			s := newScene(t, o)
			tape := NewTape(TapeConfig{})
			_, loss := s.forward(tape)
			tape.Backward(loss, func(int) {})
			step := float32(0.25) // linear: the larger the better
			if o.kinks {
				step = 1.0 / 256
			}
			skipped := 0
			for name, v := range s.operands() {
				grads := append([]float32(nil), v[1]...)
				for i, x := range v[0] {
					at := func(d float32) float64 {
						v[0][i] = x + d
						_, loss := s.forward(tape)
						v[0][i] = x
						return float64(loss.Data[0])
					}
					up, here, down := at(step), at(0), at(-step)
					if o.kinks && !near((up-here)/float64(step), (here-down)/float64(step), 0.02) {
						skipped++ // a kink lies between
						continue
					}
					if slope := (up - down) / float64(2*step); !near(slope, float64(grads[i]), 0.02) {
						t.Errorf("d%s[%d] = %v, the loss moves by %v", name, i, grads[i], slope)
					}
				}
			}
			if all := s.x.Len() + s.params.Count(); skipped > all/4 {
				t.Errorf("%d of %d slopes were not checked", skipped, all)
			}
		})
	}
}

// Results and gradients have the same bits for any number of threads, and a steady step allocates nothing.
func TestOpsOnThreads(t *testing.T) {
	for _, o := range opCases {
		t.Run(o.name, func(t *testing.T) {
			s := newScene(t, o)
			var want []float32
			for threads := 1; threads <= 3; threads++ {
				tape := NewTape(TapeConfig{Threads: threads})
				defer tape.Close()
				ready := func(int) {}
				step := func() {
					_, loss := s.forward(tape)
					tape.Backward(loss, ready)
				}
				step()
				got := slices.Concat(tape.ops[tape.n-2].result().Data, s.x.gradient(), s.params.Grads())
				if want == nil {
					want = got
				}
				if !slices.Equal(got, want) {
					t.Errorf("%d threads: other bits than 1", threads)
				}
				step()
				if n := testing.AllocsPerRun(3, step); n != 0 && !raceDetector && !strings.HasPrefix(o.name, "batch norm") { // these cases make statistics
					t.Errorf("%d threads: a steady step makes %v allocations, want 0", threads, n)
				}
			}
		})
	}
}

func TestSoftmaxCrossEntropy(t *testing.T) {
	const n, classes = 5, 7
	r := rand.New(rand.NewPCG(5, 6))
	x := NewTensor(n, classes)
	x.needs = true
	copy(x.Data, random(r, x.Len()))
	for i := range classes {
		x.Data[i] *= 200 // exponentials that overflow float32
	}
	labels := []int32{0, 6, 3, 3, 1}
	naive := func(i int, d float64) float64 {
		v := wide(x.Data)
		v[i] += d
		sum := 0.0
		for s, label := range labels {
			z := 0.0
			for _, u := range v[s*classes : (s+1)*classes] {
				z += math.Exp(u - v[s*classes+int(label)])
			}
			sum += math.Log(z)
		}
		return sum / n
	}
	tape := NewTape(TapeConfig{})
	loss, correct := tape.SoftmaxCrossEntropy(x, labels)
	if want := naive(0, 0); !near(float64(loss.Data[0]), want, 1e-6) {
		t.Errorf("loss %v, want %v", loss.Data[0], want)
	}
	want := 0
	for s, label := range labels {
		best := true
		for _, v := range x.Data[s*classes : (s+1)*classes] {
			best = best && v <= x.Data[s*classes+int(label)]
		}
		if best {
			want++
		}
	}
	if correct != want {
		t.Errorf("%d correct, want %d", correct, want)
	}
	tape.Backward(loss, nil)
	for i, g := range x.gradient() {
		if slope := (naive(i, 1e-4) - naive(i, -1e-4)) / 2e-4; !near(slope, float64(g), 1e-5) {
			t.Errorf("dx[%d] = %v, want %v", i, g, slope)
		}
	}
}

func TestSoftmaxOfNaNIsNaN(t *testing.T) {
	x := NewTensor(1, 3)
	x.Data[1] = float32(math.NaN())
	tape := NewTape(TapeConfig{})
	if loss, _ := tape.SoftmaxCrossEntropy(x, []int32{0}); loss.Data[0] == loss.Data[0] {
		t.Errorf("loss %v of logits %v", loss.Data[0], x.Data)
	}
}
