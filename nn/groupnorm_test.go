package nn

import (
	"fmt"
	"math"
	"testing"
)

func init() {
	for _, c := range []struct {
		shape  []int
		groups int
	}{{[]int{2, 3, 4, 6}, 2}, {[]int{3, 5, 6}, 3}, {[]int{2, 16, 3}, 1}, {[]int{4, 2, 2, 32}, 8}, {[]int{2, 7, 33}, 33}, {[]int{3, 8}, 2}} {
		d := c.shape[len(c.shape)-1]
		opCases = append(opCases, opCase{fmt.Sprint("group norm ", c), c.shape, []int{d}, []int{d}, true,
			func(t *Tape, x *Tensor, l Layer) *Tensor {
				return t.GroupNorm(x, Norm{Gamma: l.W, Beta: l.B}, c.groups)
			},
			func(x, w, b []float64) []float64 { return twinGroupNorm(x, w, b, c.shape[0], c.groups) }})
	}
	opCases = append(opCases, opCase{"residual of a sequence", []int{3, 4}, []int{4, 4}, []int{4}, true,
		func(t *Tape, x *Tensor, l Layer) *Tensor {
			return Residual(Sequential(l.Dense(Tanh), (*Tape).Sigmoid), l.Dense(Identity))(t, Residual(Sequential(), nil)(t, x))
		},
		func(x, w, b []float64) []float64 {
			x = each(x, func(v float64) float64 { return 2 * v })
			y, short := twinDense(3, 4, 4, Tanh)(x, w, b), twinDense(3, 4, 4, Identity)(x, w, b)
			for i, v := range short {
				y[i] = v + twinAct(Sigmoid, y[i])
			}
			return y
		}})
}

func twinGroupNorm(x, gamma, beta []float64, n, groups int) []float64 {
	c := len(gamma)
	y, each := make([]float64, len(x)), len(x)/n
	for s := range n {
		for g := range groups {
			var of []int
			for i := s * each; i < (s+1)*each; i++ {
				if i%c*groups/c == g {
					of = append(of, i)
				}
			}
			mean, variance := 0.0, 0.0
			for _, i := range of {
				mean += x[i] / float64(len(of))
			}
			for _, i := range of {
				variance += (x[i] - mean) * (x[i] - mean) / float64(len(of))
			}
			for _, i := range of {
				y[i] = gamma[i%c]*(x[i]-mean)/math.Sqrt(variance+1e-5) + beta[i%c]
			}
		}
	}
	return y
}

func TestGroupNormFaults(t *testing.T) {
	ps := NewParams(1)
	l := ps.LayerNorm("n", 6)
	x := NewTensor(2, 3, 6)
	for want, f := range map[string]func(t *Tape){
		"group norm n.weight: got [4], want a number of groups that divides 6 channels": func(t *Tape) { t.GroupNorm(x, l, 4) },
		"group norm n.weight: got [0], want a number of groups":                         func(t *Tape) { t.GroupNorm(x, l, 0) },
		"group norm n.weight: got [2 5], want an input [n, ..., channels]":              func(t *Tape) { t.GroupNorm(NewTensor(2, 5), l, 2) },
		"residual: got [2 18], want a block's result of the shortcut's shape [2 3 6]":   func(t *Tape) { Residual((*Tape).Flatten, nil)(t, x) },
	} {
		wantShapeError(t, want, f)
	}
}

// Layers of different widths on one tape: threads' memory comes to rest.
func TestGroupNormOfChangingWidths(t *testing.T) {
	ps := NewParams(1)
	narrow, wide := ps.LayerNorm("narrow", 8), ps.LayerNorm("wide", 320)
	x, z := NewTensor(4, 5, 8), NewTensor(4, 2, 320)
	loss := func(t *Tape) *Tensor {
		return t.Add(t.Sum(t.GroupNorm(x, narrow, 2)), t.Sum(t.GroupNorm(z, wide, 32)))
	}
	if err := ps.Arrange(loss); err != nil {
		t.Fatal(err)
	}
	tape := NewTape(TapeConfig{Threads: 3})
	defer tape.Close()
	ready := func(int) {}
	step := func() {
		tape.Reset()
		tape.Backward(loss(tape), ready)
	}
	for range 5 {
		step()
	}
	if n := testing.AllocsPerRun(10, step); n != 0 && !raceDetector {
		t.Errorf("%v allocations a step, want 0", n)
	}
}
