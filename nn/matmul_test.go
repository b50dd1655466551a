package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// matMulShapes are pairs of factors, before any is transposed: m, k and n of 3, 4 and 5, or more than a cut.
var matMulShapes = [][2][]int{
	{{3, 4}, {4, 5}}, {{2, 3, 4}, {2, 4, 5}}, {{2, 2, 3, 4}, {2, 2, 4, 5}}, {{2, 3, 4}, {4, 5}}, {{3, 4}, {2, 4, 5}}, {{37, 3}, {3, 2}}, {{1, 1}, {1, 1}},
}

func init() {
	for _, s := range matMulShapes {
		for _, cfg := range []MatMul{{}, {TransposeA: true}, {TransposeB: true}, {true, true}} {
			a, b := swapped(s[0], cfg.TransposeA), swapped(s[1], cfg.TransposeB)
			opCases = append(opCases, opCase{fmt.Sprint("matmul ", a, b, cfg), a, b, nil, false,
				func(t *Tape, x *Tensor, l Layer) *Tensor { return t.MatMul(x, t.Parameter(l.W), cfg) },
				func(x, w, _ []float64) []float64 { return twinMatMul(x, w, s[0], s[1], cfg) }})
		}
	}
	one := NewTensor(1) // away from rows that are nearly of no length
	one.Data[0] = 1
	for _, dim := range []int{1, 3, 19, 33} {
		x := []int{2, 3, dim}
		opCases = append(opCases,
			opCase{fmt.Sprint("softmax of ", dim), x, nil, nil, true,
				func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.Softmax(x) },
				func(x, _, _ []float64) []float64 { return eachRow(x, dim, twinSoftmax) }},
			opCase{fmt.Sprint("log-softmax of ", dim), x, nil, nil, true,
				func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.LogSoftmax(x) },
				func(x, _, _ []float64) []float64 {
					return eachRow(x, dim, func(row []float64) []float64 { return each(twinSoftmax(row), math.Log) })
				}},
			opCase{fmt.Sprint("normalise ", dim), x, nil, nil, true,
				func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.Normalize(t.Add(x, one)) },
				func(x, _, _ []float64) []float64 {
					return eachRow(each(x, func(v float64) float64 { return v + 1 }), dim, twinNormalize)
				}},
			opCase{fmt.Sprint("dot product by rows of ", dim), x, x, nil, false,
				func(t *Tape, x *Tensor, l Layer) *Tensor { return t.RowDot(x, t.Parameter(l.W)) },
				func(x, w, _ []float64) []float64 { return twinRowDot(x, w, dim) }},
			opCase{fmt.Sprint("dot product of itself by rows of ", dim), x, nil, nil, true,
				func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.RowDot(x, x) },
				func(x, _, _ []float64) []float64 { return twinRowDot(x, x, dim) }})
	}
}

// swapped is the shape with its last two axes exchanged.
func swapped(shape []int, do bool) []int {
	s := slices.Clone(shape)
	if n := len(s); do {
		s[n-2], s[n-1] = s[n-1], s[n-2]
	}
	return s
}

// twinMatMul takes the shapes before transposition.
func twinMatMul(a, b []float64, as, bs []int, cfg MatMul) (y []float64) {
	m, k, n := as[len(as)-2], as[len(as)-1], bs[len(bs)-1]
	at := func(x []float64, shape []int, i, row, col int, transposed bool) float64 {
		rows, cols := shape[len(shape)-2], shape[len(shape)-1]
		if len(shape) == 2 {
			i = 0
		}
		if transposed {
			return x[i*rows*cols+col*rows+row]
		}
		return x[i*rows*cols+row*cols+col]
	}
	for i := range max(len(a)/(m*k), len(b)/(k*n)) {
		for row := range m {
			for col := range n {
				sum := 0.0
				for l := range k {
					sum += at(a, as, i, row, l, cfg.TransposeA) * at(b, bs, i, l, col, cfg.TransposeB)
				}
				y = append(y, sum)
			}
		}
	}
	return y
}

func eachRow(x []float64, dim int, f func(row []float64) []float64) (y []float64) {
	for row := range slices.Chunk(x, dim) {
		y = append(y, f(row)...)
	}
	return y
}

func twinSoftmax(row []float64) []float64 {
	sum := 0.0
	for _, v := range row {
		sum += math.Exp(v)
	}
	return each(row, func(v float64) float64 { return math.Exp(v) / sum })
}

func twinNormalize(row []float64) []float64 {
	squares := 0.0
	for _, v := range row {
		squares += v * v
	}
	return each(row, func(v float64) float64 { return v / math.Sqrt(squares) })
}

func twinRowDot(a, b []float64, dim int) []float64 {
	y := make([]float64, len(a)/dim)
	for i, v := range a {
		y[i/dim] += v * b[i]
	}
	return y
}

// Rows of zeros stay zeros, and logits of any size have a softmax.
func TestRowsAtTheLimits(t *testing.T) {
	tape := NewTape(TapeConfig{})
	zeros := NewTensor(1, 3)
	zeros.RetainGrad()
	y := tape.Normalize(zeros)
	tape.Backward(tape.dot(y, []float32{1, 2, 3}), nil)
	if !slices.Equal(y.Data, []float32{0, 0, 0}) || !slices.Equal(zeros.Grad(), []float32{1e12, 2e12, 3e12}) {
		t.Errorf("a row of zeros becomes %v, its gradient %v", y.Data, zeros.Grad())
	}
	x := NewTensor(1, 3)
	copy(x.Data, []float32{-1000, 1000, 0})
	if p, l := tape.Softmax(x), tape.LogSoftmax(x); !slices.Equal(p.Data, []float32{0, 1, 0}) || !slices.Equal(l.Data, []float32{-2000, 0, -1000}) {
		t.Errorf("softmax %v and its logarithm %v", p.Data, l.Data)
	}
}

func TestMatMulWork(t *testing.T) {
	ps := NewParams(1)
	w := ps.New("w", Zeros, 3, 5, 7)
	x := NewTensor(3, 4, 5)
	if err := ps.Arrange(func(t *Tape) *Tensor { return t.Sum(t.MatMul(x, t.Parameter(w), MatMul{})) }); err != nil {
		t.Fatal(err)
	}
	const product = 2 * 3 * 4 * 5 * 7
	if forward, backward := ps.Work(); forward.FLOPs != product || backward[0].FLOPs != product {
		t.Errorf("%v operations forward and %v backward, want %v", forward.FLOPs, backward[0].FLOPs, product)
	}
}

func TestMatMulFaults(t *testing.T) {
	x := NewTensor(2, 3)
	for want, f := range map[string]func(t *Tape){
		"matmul: got [2 3], want a second factor with as many rows as the first has columns, one at least, of [2 3] (transposed: false and false)": func(t *Tape) { t.MatMul(x, x, MatMul{}) },
		"of [2 3] (transposed: true and true)":                         func(t *Tape) { t.MatMul(x, x, MatMul{true, true}) },
		"matmul: got [3], want two matrices":                           func(t *Tape) { t.MatMul(x, NewTensor(3), MatMul{}) },
		"matmul: got [4 3 2], want a batch as of [5 2 3]":              func(t *Tape) { t.MatMul(NewTensor(5, 2, 3), NewTensor(4, 3, 2), MatMul{}) },
		"matmul: got [0 2], want a second factor":                      func(t *Tape) { t.MatMul(NewTensor(2, 0), NewTensor(0, 2), MatMul{}) },
		"softmax: got [0 3], want rows of one value at least":          func(t *Tape) { t.Softmax(NewTensor(0, 3)) },
		"dot product by rows: got [3 2], want the same shape as [2 3]": func(t *Tape) { t.RowDot(x, NewTensor(3, 2)) },
	} {
		wantShapeError(t, want, f)
	}
}

// BenchmarkMatMul is the products of an InfoNCE loss, and of a batch of small matrices.
func BenchmarkMatMul(b *testing.B) {
	for _, s := range [][4]int{{1, 512, 512, 256}, {64, 32, 32, 64}} {
		x, y := NewTensor(s[0], s[1], s[3]), NewTensor(s[0], s[2], s[3])
		r := rand.New(rand.NewPCG(1, 2))
		copy(x.Data, random(r, x.Len()))
		copy(y.Data, random(r, y.Len()))
		b.Run(fmt.Sprint(s), func(b *testing.B) {
			tape := NewTape(TapeConfig{})
			for b.Loop() {
				tape.Reset()
				tape.MatMul(x, y, MatMul{TransposeB: true})
			}
			b.ReportMetric(2*float64(s[0]*s[1]*s[2]*s[3])*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
