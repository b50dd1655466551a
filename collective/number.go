package collective

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/simd"
)

// Number is a type that reductions support. Values are sent in their memory layout, little-endian
// on every supported platform.
type Number interface {
	~float32 | ~float64 | ~int32 | ~int64 | ~uint8 | Float16 | BFloat16
}

// Float16 is the bits of an IEEE 754 binary16 number. Reductions compute in float32 and round
// stored results: direct ones once, reductions by messages at every step. Rounding makes 65,520 and
// more infinite, including a sum with a finite mean: scale such values first.
type Float16 uint16

// BFloat16 is the upper half of a float32, reduced like Float16.
type BFloat16 uint16

// element is the representation of a Number. The algorithms get bytes and an element instead of a
// type parameter, so that one copy of the code serves all types without allocation.
type element uint8

const (
	float32s element = iota
	float64s
	int32s
	int64s
	uint8s
	float16s
	bfloat16s
	elements
)

var elementNames = [elements]string{"float32", "float64", "int32", "int64", "uint8", "float16", "bfloat16"}

func (e element) String() string { return elementNames[e] }

func (e element) float() bool { return e <= float64s || e >= float16s }

// size returns the size of a value in bytes.
func (e element) size() int { return [...]int{4, 8, 4, 8, 1, 2, 2}[e] }

// elementOf returns T's representation. Integers are types with T(1)/T(2) == 0.
func elementOf[T Number]() element {
	var zero T
	fraction := T(1)/T(2) != 0
	switch size := unsafe.Sizeof(zero); {
	case size == 1:
		return uint8s
	case size == 2:
		if _, ok := any(zero).(Float16); ok {
			return float16s
		}
		return bfloat16s
	case size == 4 && fraction:
		return float32s
	case size == 4:
		return int32s
	case fraction:
		return float64s
	}
	return int64s
}

// kernel returns the reduction for two operands; of a mean, the sum.
func (op ReduceOp) kernel() simd.Reduction {
	switch op {
	case Min:
		return simd.ReduceMin
	case Max:
		return simd.ReduceMax
	case Prod:
		return simd.ReduceProd
	}
	return simd.ReduceSum
}

// combine sets dst to the reduction of a and b; dst may be a or b. For equal bits on all ranks a
// must be the lower rank's operand: the result of two different float64 NaNs depends on the order.
func (w *Work) combine(dst, a, b []byte) {
	k, op := w.g.kernels, w.op.kernel()
	switch w.elem {
	case float32s:
		k.Combine(op, bytesview.As[float32](dst), bytesview.As[float32](a), bytesview.As[float32](b))
	case float16s:
		k.CombineHalf(op, bytesview.As[uint16](dst), bytesview.As[uint16](a), bytesview.As[uint16](b))
	case bfloat16s:
		k.CombineBrain(op, bytesview.As[uint16](dst), bytesview.As[uint16](a), bytesview.As[uint16](b))
	case float64s:
		combine(op, bytesview.As[float64](dst), bytesview.As[float64](a), bytesview.As[float64](b))
	case int32s:
		combine(op, bytesview.As[int32](dst), bytesview.As[int32](a), bytesview.As[int32](b))
	case int64s:
		combine(op, bytesview.As[int64](dst), bytesview.As[int64](a), bytesview.As[int64](b))
	case uint8s:
		combine(op, dst, a, b)
	}
}

// average multiplies x by 1/Size at the end of a mean. For other reductions it does nothing.
func (w *Work) average(x []byte) {
	if w.op != Mean {
		return
	}
	k, factor := w.g.kernels, 1/float32(w.g.size)
	switch w.elem {
	case float32s:
		k.Scale(bytesview.As[float32](x), factor)
	case float16s:
		v := [][]uint16{bytesview.As[uint16](x)}
		k.ReduceAllHalf(simd.ReduceSum, v, v, factor)
	case bfloat16s:
		v := [][]uint16{bytesview.As[uint16](x)}
		k.ReduceAllBrain(simd.ReduceSum, v, v, factor)
	case float64s:
		multiply(bytesview.As[float64](x), 1/float64(w.g.size))
	}
}

// combine reduces values of types without vector code. Integers wrap around.
func combine[T float64 | int32 | int64 | uint8](op simd.Reduction, dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	switch op {
	case simd.ReduceSum:
		for i := range dst {
			dst[i] = a[i] + b[i]
		}
	case simd.ReduceMin:
		for i := range dst {
			dst[i] = min(a[i], b[i])
		}
	case simd.ReduceMax:
		for i := range dst {
			dst[i] = max(a[i], b[i])
		}
	case simd.ReduceProd:
		for i := range dst {
			dst[i] = a[i] * b[i]
		}
	}
}

func multiply(x []float64, factor float64) {
	for i := range x {
		x[i] *= factor
	}
}
