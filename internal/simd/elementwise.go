package simd

import (
	"fmt"
	"sync"
)

// callFloats limits the elements of one call of an elementwise assembly kernel: 64 KiB an operand,
// some ten microseconds even from memory.
const callFloats = 16 << 10

// bulk returns the number of the n elements for the next assembly call; 0 means none.
func (k *Kernels) bulk(n int) int {
	if k.vec.width == 0 {
		return 0
	}
	return min(n, callFloats) / k.vec.width * k.vec.width
}

func sameLength(op string, lengths ...int) {
	for _, n := range lengths[1:] {
		if n != lengths[0] {
			panic(fmt.Sprintf("simd: %s: operands of different lengths %v", op, lengths))
		}
	}
}

// Add computes dst[i] += src[i]: the reduction of every collective.
func (k *Kernels) Add(dst, src []float32) {
	if len(dst) != len(src) {
		sameLength("Add", len(dst), len(src))
	}
	for n := k.bulk(len(dst)); n > 0; n = k.bulk(len(dst)) {
		k.vec.add(&dst[0], &src[0], n)
		dst, src = dst[n:], src[n:]
	}
	addGo(dst, src)
}

// AddTo computes dst[i] = a[i] + b[i]. dst may be a or b.
func (k *Kernels) AddTo(dst, a, b []float32) {
	if len(dst) != len(a) || len(dst) != len(b) {
		sameLength("AddTo", len(dst), len(a), len(b))
	}
	for n := k.bulk(len(dst)); n > 0; n = k.bulk(len(dst)) {
		k.vec.addTo(&dst[0], &a[0], &b[0], n)
		dst, a, b = dst[n:], a[n:], b[n:]
	}
	addToGo(dst, a, b)
}

// Scale computes x[i] *= s.
func (k *Kernels) Scale(x []float32, s float32) {
	for n := k.bulk(len(x)); n > 0; n = k.bulk(len(x)) {
		k.vec.scale(&x[0], n, s)
		x = x[n:]
	}
	scaleGo(x, s)
}

// ReLU computes dst[i] = 0 where x[i] < 0, and x[i] elsewhere: NaN stays NaN. dst may be x.
func (k *Kernels) ReLU(dst, x []float32) {
	if len(dst) != len(x) {
		sameLength("ReLU", len(dst), len(x))
	}
	for n := k.bulk(len(dst)); n > 0; n = k.bulk(len(dst)) {
		k.vec.relu(&dst[0], &x[0], n)
		dst, x = dst[n:], x[n:]
	}
	reluGo(dst, x)
}

// ReLUGrad computes dx[i] = dy[i] where y[i] > 0, and 0 elsewhere (also where
// y is NaN). y is the output of ReLU; dx may be dy or y.
func (k *Kernels) ReLUGrad(dx, dy, y []float32) {
	if len(dx) != len(dy) || len(dx) != len(y) {
		sameLength("ReLUGrad", len(dx), len(dy), len(y))
	}
	for n := k.bulk(len(dx)); n > 0; n = k.bulk(len(dx)) {
		k.vec.reluGrad(&dx[0], &dy[0], &y[0], n)
		dx, dy, y = dx[n:], dy[n:], y[n:]
	}
	reluGradGo(dx, dy, y)
}

// Sum returns the sum of x in float64. Element i goes to lane i mod 16; the
// lanes are then added pairwise, in a fixed order.
func (k *Kernels) Sum(x []float32) float64 {
	lanes, rest := k.sumLanes(x, k.vec.sum)
	for i, v := range rest {
		lanes[i&15] += float64(v)
	}
	return foldLanes(lanes)
}

// SumSquares returns the sum of squares of x in float64, in the order of [Kernels.Sum]. Squares are
// exact; only additions round.
func (k *Kernels) SumSquares(x []float32) float64 {
	lanes, rest := k.sumLanes(x, k.vec.sumSquares)
	for i, v := range rest {
		lanes[i&15] += float64(float64(v) * float64(v))
	}
	return foldLanes(lanes)
}

// lanePool is memory for the lanes of a sum: an argument of a kernel in a function value would
// otherwise be allocated in every call.
var lanePool = sync.Pool{New: func() any { return new([16]float64) }}

// sumLanes adds the floats that sum takes, 16 at a time, and returns the lanes and the rest.
func (k *Kernels) sumLanes(x []float32, sum func(*[16]float64, *float32, int)) (lanes *[16]float64, rest []float32) {
	lanes = lanePool.Get().(*[16]float64)
	clear(lanes[:])
	for n := k.bulk(len(x)) &^ 15; n > 0; n = k.bulk(len(x)) &^ 15 {
		sum(lanes, &x[0], n)
		x = x[n:]
	}
	return lanes, x
}

// foldLanes returns the total, and the lanes to the pool.
func foldLanes(lanes *[16]float64) float64 {
	defer lanePool.Put(lanes)
	for half := 8; half > 0; half /= 2 {
		for i := range half {
			lanes[i] += lanes[i+half]
		}
	}
	return lanes[0]
}

// The portable kernels. A conversion to float32 rounds the product, so that no
// compiler fuses it with the addition.

func addGo(dst, src []float32) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] += src[i]
	}
}

func addToGo(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func scaleGo(x []float32, s float32) {
	for i := range x {
		x[i] *= s
	}
}

func reluGo(dst, x []float32) {
	x = x[:len(dst)]
	for i, v := range x {
		if v < 0 {
			v = 0
		}
		dst[i] = v
	}
}

func reluGradGo(dx, dy, y []float32) {
	dy, y = dy[:len(dx)], y[:len(dx)]
	for i := range dx {
		if y[i] > 0 {
			dx[i] = dy[i]
		} else {
			dx[i] = 0
		}
	}
}
