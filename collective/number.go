package collective

import "unsafe"

// Number is what can be reduced. Values cross the wire as they lie in memory,
// little-endian on every supported platform.
type Number interface {
	~float32 | ~float64 | ~int32 | ~int64 | ~uint8
}

// element is the representation of a Number. Beneath the generic functions
// everything works on bytes and an element: one copy of the algorithms, and
// nothing to allocate.
type element uint8

const (
	float32s element = iota
	float64s
	int32s
	int64s
	uint8s
	elements
)

var elementNames = [elements]string{"float32", "float64", "int32", "int64", "uint8"}

func (e element) String() string { return elementNames[e] }

func (e element) float() bool { return e <= float64s }

// size is in bytes.
func (e element) size() int { return [...]int{4, 8, 4, 8, 1}[e] }

// elementOf finds T's representation by what sets it apart: its size, and
// whether it has fractions.
func elementOf[T Number]() element {
	var zero T
	fraction := T(1)/T(2) != 0
	switch size := unsafe.Sizeof(zero); {
	case size == 1:
		return uint8s
	case size == 4 && fraction:
		return float32s
	case size == 4:
		return int32s
	case fraction:
		return float64s
	}
	return int64s
}

// bytesOf is x as bytes, without a copy.
func bytesOf[T Number](x []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(zero)))
}

// valuesOf is the inverse of bytesOf. b must be aligned for T.
func valuesOf[T Number](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

// combine does dst = a op b, where dst may be a or b. For an operation that all
// ranks are to do with the same bits, a is the lower rank's operand: which of
// two NaNs survives depends on the order.
func (w *Work) combine(dst, a, b []byte) {
	op := w.op
	if op == Mean {
		op = Sum
	}
	if w.elem == float32s && op == Sum && unsafe.SliceData(dst) == unsafe.SliceData(a) {
		w.g.kernels.Add(valuesOf[float32](dst), valuesOf[float32](b))
		return
	}
	switch w.elem {
	case float32s:
		combine(op, valuesOf[float32](dst), valuesOf[float32](a), valuesOf[float32](b))
	case float64s:
		combine(op, valuesOf[float64](dst), valuesOf[float64](a), valuesOf[float64](b))
	case int32s:
		combine(op, valuesOf[int32](dst), valuesOf[int32](a), valuesOf[int32](b))
	case int64s:
		combine(op, valuesOf[int64](dst), valuesOf[int64](a), valuesOf[int64](b))
	case uint8s:
		combine(op, dst, a, b)
	}
}

// average ends a mean: x *= 1/Size. It does nothing for the other reductions.
func (w *Work) average(x []byte) {
	if w.op != Mean {
		return
	}
	switch w.elem {
	case float32s:
		w.g.kernels.Scale(valuesOf[float32](x), 1/float32(w.g.size))
	case float64s:
		multiply(valuesOf[float64](x), 1/float64(w.g.size))
	}
}

// combine is the one path of all types without kernels. Integers wrap around.
func combine[T Number](op Op, dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	switch op {
	case Sum:
		for i := range dst {
			dst[i] = a[i] + b[i]
		}
	case Min:
		for i := range dst {
			dst[i] = min(a[i], b[i])
		}
	case Max:
		for i := range dst {
			dst[i] = max(a[i], b[i])
		}
	case Prod:
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
