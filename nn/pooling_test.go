package nn

import (
	"fmt"
	"strings"
	"testing"
)

// twinWindows is f of the values of each window of images [n, h, w, c].
func twinWindows(n, h, w, c int, p Pool, f func(window []float64) float64) twin {
	if p.Stride == 0 {
		p.Stride = p.Size
	}
	return func(x, _, _ []float64) []float64 {
		var y []float64
		for s := range n {
			for top := -p.Pad; top+p.Size <= h+p.Pad; top += p.Stride {
				for left := -p.Pad; left+p.Size <= w+p.Pad; left += p.Stride {
					for ch := range c {
						var window []float64
						for i := max(0, top); i < min(h, top+p.Size); i++ {
							for j := max(0, left); j < min(w, left+p.Size); j++ {
								window = append(window, x[((s*h+i)*w+j)*c+ch])
							}
						}
						y = append(y, f(window))
					}
				}
			}
		}
		return y
	}
}

func largest(window []float64) float64 {
	most := window[0]
	for _, v := range window {
		most = max(most, v)
	}
	return most
}

func total(window []float64) float64 {
	sum := 0.0
	for _, v := range window {
		sum += v
	}
	return sum
}

func poolCases(shape []int, p Pool) []opCase {
	n, h, w, c := shape[0], shape[1], shape[2], shape[3]
	name := fmt.Sprintf("pool %v %+v", shape, p)
	mean := func(window []float64) float64 { return total(window) / float64(p.Size*p.Size) }
	return []opCase{
		{"max-" + name, shape, nil, nil, true,
			func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.MaxPool(x, p) }, twinWindows(n, h, w, c, p, largest)},
		{"average " + name, shape, nil, nil, false,
			func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.AvgPool(x, p) }, twinWindows(n, h, w, c, p, mean)},
	}
}

func twinSubsample(n, h, w, c, stride, channels int) twin {
	return func(x, _, _ []float64) []float64 {
		var y []float64
		for s := range n {
			for i := 0; i < h; i += stride {
				for j := 0; j < w; j += stride {
					pixel := make([]float64, channels)
					copy(pixel[(channels-c)/2:], x[((s*h+i)*w+j)*c:][:c])
					y = append(y, pixel...)
				}
			}
		}
		return y
	}
}

func init() {
	opCases = append(opCases, poolCases([]int{2, 4, 6, 3}, Pool{Size: 2})...)
	opCases = append(opCases, poolCases([]int{1, 5, 6, 17}, Pool{Size: 3, Stride: 2, Pad: 1})...)
	opCases = append(opCases, poolCases([]int{2, 5, 5, 2}, Pool{Size: 2, Stride: 1})...)
	opCases = append(opCases,
		opCase{"global average pool", []int{2, 3, 5, 4}, nil, nil, false,
			func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.GlobalAvgPool(x) },
			func(x, _, _ []float64) []float64 {
				y := make([]float64, 2*4)
				for i, v := range x {
					y[i/(3*5*4)*4+i%4] += v / 15
				}
				return y
			}},
		opCase{"subsampling", []int{2, 5, 4, 3}, nil, nil, false,
			func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.SubsamplePad(x, 2, 8) }, twinSubsample(2, 5, 4, 3, 2, 8)},
		opCase{"subsampling of every pixel", []int{1, 2, 3, 4}, nil, nil, false,
			func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.SubsamplePad(x, 1, 4) }, twinSubsample(1, 2, 3, 4, 1, 4)},
	)
}

// The windows of a tape's images follow their shapes.
func TestPoolsFollowTheShape(t *testing.T) {
	tape := NewTape(TapeConfig{Threads: 2})
	defer tape.Close()
	for _, h := range []int{6, 4, 9} {
		x := NewTensor(3, h, 8, 5)
		for i := range x.Data {
			x.Data[i] = float32(i * 7919 % 1000)
		}
		tape.Reset()
		y := tape.MaxPool(x, Pool{Size: 2})
		for i, v := range twinWindows(3, h, 8, 5, Pool{Size: 2}, largest)(wide(x.Data), nil, nil) {
			if float64(y.Data[i]) != v {
				t.Fatalf("height %d: y[%d] = %v, want %v", h, i, y.Data[i], v)
			}
		}
	}
}

func TestPoolStepsDoNotAllocate(t *testing.T) {
	x := NewTensor(4, 9, 9, 20)
	x.needs = true
	c := make([]float32, 4*40)
	tape := NewTape(TapeConfig{Threads: 2})
	defer tape.Close()
	step := func() {
		tape.Reset()
		y := tape.MaxPool(x, Pool{Size: 3, Stride: 2, Pad: 1})
		y = tape.SubsamplePad(tape.AvgPool(y, Pool{Size: 2}), 2, 40)
		tape.Backward(tape.dot(tape.GlobalAvgPool(y), c), nil)
	}
	step()
	if n := testing.AllocsPerRun(5, step); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}

func TestPoolShapeErrors(t *testing.T) {
	for want, f := range map[string]func(t *Tape){
		"max-pool: got [2 3], want images":          func(t *Tape) { t.MaxPool(NewTensor(2, 3), Pool{Size: 2}) },
		"max-pool: got [1 2 2 1], want windows":     func(t *Tape) { t.MaxPool(NewTensor(1, 2, 2, 1), Pool{Size: 3}) },
		"average pool: got [1 4 4 1], want windows": func(t *Tape) { t.AvgPool(NewTensor(1, 4, 4, 1), Pool{Size: 2, Pad: 2}) },
		"global average pool: got [0 1 1 1]":        func(t *Tape) { t.GlobalAvgPool(NewTensor(0, 1, 1, 1)) },
		"subsampling: got [0]":                      func(t *Tape) { t.SubsamplePad(NewTensor(1, 4, 4, 2), 0, 2) },
		"subsampling: got [1 2]":                    func(t *Tape) { t.SubsamplePad(NewTensor(1, 4, 4, 2), 1, 1) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("panic %q, want it to hold %q", got, want)
				}
			}()
			f(NewTape(TapeConfig{}))
		}()
	}
}
