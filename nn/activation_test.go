package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func init() {
	for act, name := range map[Activation]string{Tanh: "tanh", Sigmoid: "sigmoid", GELU: "gelu"} {
		opCases = append(opCases,
			opCase{name, []int{5, 33}, nil, nil, true,
				func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.Activate(x, act) },
				func(x, _, _ []float64) []float64 {
					y := make([]float64, len(x))
					for i, v := range x {
						y[i] = twinAct(act, v)
					}
					return y
				}},
			opCase{"dense and " + name, []int{3, 4}, []int{19, 4}, []int{19}, true,
				func(t *Tape, x *Tensor, l Layer) *Tensor { return t.Dense(x, l, act) },
				twinDense(3, 4, 19, act)},
		)
	}
	for _, shape := range [][]int{{3, 5}, {2, 3, 16}, {40, 33}} {
		d := shape[len(shape)-1]
		opCases = append(opCases, opCase{fmt.Sprint("layer norm ", shape), shape, []int{d}, []int{d}, true,
			func(t *Tape, x *Tensor, l Layer) *Tensor { return t.LayerNorm(x, Norm{Gamma: l.W, Beta: l.B}) },
			twinLayerNorm(d)})
	}
}

func twinLayerNorm(d int) twin {
	return func(x, gamma, beta []float64) []float64 {
		y, n := make([]float64, len(x)), float64(d)
		for at := 0; at < len(x); at += d {
			mean, variance := 0.0, 0.0
			for _, v := range x[at : at+d] {
				mean += v / n
			}
			for _, v := range x[at : at+d] {
				variance += (v - mean) * (v - mean) / n
			}
			for i, v := range x[at : at+d] {
				y[at+i] = gamma[i]*(v-mean)/math.Sqrt(variance+1e-5) + beta[i]
			}
		}
		return y
	}
}

// curveModel has layer norms and activations enough for several parts.
func curveModel(t *testing.T) (ps *Params, loss func(t *Tape) *Tensor) {
	t.Helper()
	ps = NewParams(2)
	in, norm, out := ps.Dense("in", 3, 64), ps.LayerNorm("norm", 64), ps.Dense("out", 64, 5)
	square := Layer{W: ps.New("square", Uniform(0.1), 64, 64)}
	x, labels := NewTensor(1500, 3), make([]int32, 1500)
	copy(x.Data, random(rand.New(rand.NewPCG(98, 99)), x.Len()))
	loss = func(t *Tape) *Tensor {
		h := t.Dense(x, in, Tanh)
		h = t.Add(h, t.Dense(t.LayerNorm(h, norm), square, GELU))
		loss, _ := t.SoftmaxCrossEntropy(t.Dense(t.Sigmoid(h), out, Identity), labels)
		return loss
	}
	if err := ps.Arrange(loss); err != nil {
		t.Fatal(err)
	}
	return ps, loss
}

func TestCurvesKeepTheBits(t *testing.T) {
	ps, loss := curveModel(t)
	var want []float32
	for threads := 1; threads <= 3; threads++ {
		tape := NewTape(TapeConfig{Threads: threads})
		defer tape.Close()
		step := func() {
			tape.Reset()
			tape.Backward(loss(tape), func(int) {})
		}
		step()
		got := slices.Clone(ps.Grads())
		if want == nil {
			want = got
		}
		if !slices.Equal(want, got) {
			t.Errorf("%d threads: other gradients", threads)
		}
		if n := testing.AllocsPerRun(3, step); n != 0 {
			t.Errorf("%d threads: %v allocations a step", threads, n)
		}
	}
}
