package simd

import (
	"fmt"
	"math"
)

// compressLevel holds the kernels of gradient compression. Counts are multiples
// of vectorLevel.width (sums: of 16). nil: portable.
type compressLevel struct {
	takeAdded     [2]func(index *int32, value, x, grad *float32, n int, least uint32, base int32) int // [Few, Many]
	take          [2]func(index *int32, value, x *float32, n int, least uint32, base int32) int
	addRuns       func(dst, a, b *float32, at *uint32, runs int)
	countAtLeast  func(x *float32, n int, least uint32) uint32
	maxMagnitude  func(x *float32, n int) uint32
	sumMagnitudes func(lanes *[16]float64, x *float32, n int)
	subtract      func(x, y *float32, n int)
	quantise      func(dst *int8, x *float32, n int, factor float32)
	dequantise    func(dst *float32, x *int8, n int, scale float32)
	// quantiseBlocks and dequantiseBlocks return the number of completed blocks: see Int8Block.
	quantiseBlocks   func(dst *int8, x *float32, blocks int, least, cut uint32) int
	dequantiseBlocks func(dst *float32, x *int8, blocks int, most uint32) int
	toSigns          func(dst *byte, x *float32, n int)
	fromSigns        func(dst *float32, x *byte, n int, scale float32)
	gaps             gapLevel
	sieve            sieveLevel
}

// Magnitude returns the bits of x without the sign. They are ordered like magnitudes; NaNs are
// above [InfMagnitude].
func Magnitude(x float32) uint32 { return math.Float32bits(x) &^ (1 << 31) }

// InfMagnitude are the bits of infinity.
const InfMagnitude = 0x7f800000

// Often is the frequency of taken values. It changes only the time of a kernel.
type Often int

// Few is up to one of 32.
const (
	Few Often = iota
	Many
)

// OftenOf is the frequency of count of n values.
func OftenOf(count, n int) Often {
	if 32*count > n {
		return Many
	}
	return Few
}

// TakeAdded adds grad to x and moves out of x, in the same pass, the values with magnitude bits of
// at least least (below 1<<31):
//
//	x[i] += grad[i]
//	if Magnitude(x[i]) >= least: append base+i to index and x[i] to value; x[i] = 0
//
// It returns their number. NaN is always among them. index and value are at least as long as x, and
// unspecified after the returned count.
func (k *Kernels) TakeAdded(index []int32, value, x, grad []float32, least uint32, base int32, often Often) int {
	if len(x) != len(grad) {
		sameLength("TakeAdded", len(x), len(grad))
	}
	index, value = index[:len(x)], value[:len(x)]
	count := 0
	for n := k.bulk(len(x)); n > 0; n = k.bulk(len(x)) {
		count += k.compress.takeAdded[often](&index[count], &value[count], &x[0], &grad[0], n, least, base)
		x, grad, base = x[n:], grad[n:], base+int32(n)
	}
	for i, g := range grad {
		v := x[i] + g
		if Magnitude(v) >= least {
			index[count], value[count] = base+int32(i), v
			count++
			v = 0
		}
		x[i] = v
	}
	return count
}

// Take is [Kernels.TakeAdded] without the addition.
func (k *Kernels) Take(index []int32, value, x []float32, least uint32, base int32, often Often) int {
	index, value = index[:len(x)], value[:len(x)]
	count := 0
	for n := k.bulk(len(x)); n > 0; n = k.bulk(len(x)) {
		count += k.compress.take[often](&index[count], &value[count], &x[0], n, least, base)
		x, base = x[n:], base+int32(n)
	}
	for i, v := range x {
		if Magnitude(v) >= least {
			index[count], value[count] = base+int32(i), v
			count++
			x[i] = 0
		}
	}
	return count
}

// RunFloats is the length of a run of [Kernels.AddRuns]: a cache line.
const RunFloats = 16

// AddRuns writes to dst, len(at)*RunFloats values, the sums of runs of a and b, which have equal
// length. The runs begin at the indices at; run i is
//
//	dst[i*RunFloats+j] = a[at[i]+j] + b[at[i]+j], j < RunFloats
//
// A run costs 2 ns from the caches; as a call of [Kernels.AddTo] it costs 12.
func (k *Kernels) AddRuns(dst, a, b []float32, at []uint32) {
	if len(a) != len(b) || len(dst) != RunFloats*len(at) {
		panic(fmt.Sprintf("simd: AddRuns: %d runs to %d values, of arrays of %d and %d", len(at), len(dst), len(a), len(b)))
	}
	for _, place := range at {
		_ = a[place : place+RunFloats]
	}
	if k.compress.addRuns == nil {
		for i, place := range at {
			addToGo(dst[i*RunFloats:][:RunFloats], a[place:][:RunFloats], b[place:][:RunFloats])
		}
		return
	}
	for len(at) > 0 {
		runs := min(len(at), callFloats/RunFloats)
		k.compress.addRuns(&dst[0], &a[0], &b[0], &at[0], runs)
		dst, at = dst[runs*RunFloats:], at[runs:]
	}
}

// CountAtLeast returns the number of magnitudes with bits of at least least, which is below 1<<31.
func (k *Kernels) CountAtLeast(x []float32, least uint32) (count int) {
	for n := k.bulk(len(x)); n > 0; n = k.bulk(len(x)) {
		count += int(k.compress.countAtLeast(&x[0], n, least))
		x = x[n:]
	}
	for _, v := range x {
		if Magnitude(v) >= least {
			count++
		}
	}
	return count
}

// MaxMagnitude returns the bits of the largest magnitude, 0 without values. They are above
// [InfMagnitude] if a value is NaN.
func (k *Kernels) MaxMagnitude(x []float32) (most uint32) {
	for n := k.bulk(len(x)); n > 0; n = k.bulk(len(x)) {
		most = max(most, k.compress.maxMagnitude(&x[0], n))
		x = x[n:]
	}
	for _, v := range x {
		most = max(most, Magnitude(v))
	}
	return most
}

// SumMagnitudes returns the sum of magnitudes in float64, in the order of [Kernels.Sum].
func (k *Kernels) SumMagnitudes(x []float32) float64 {
	lanes, rest := k.sumLanes(x, k.compress.sumMagnitudes)
	for i, v := range rest {
		lanes[i&15] += math.Abs(float64(v))
	}
	return foldLanes(lanes)
}

// Subtract computes x[i] -= y[i].
func (k *Kernels) Subtract(x, y []float32) {
	if len(x) != len(y) {
		sameLength("Subtract", len(x), len(y))
	}
	for n := k.bulk(len(x)); n > 0; n = k.bulk(len(x)) {
		k.compress.subtract(&x[0], &y[0], n)
		x, y = x[n:], y[n:]
	}
	for i, v := range y {
		x[i] -= v
	}
}

// Quantise computes dst[i] = x[i]*factor, the product rounded as a float32 and
// then to the nearest integer, ties to even. Products must be within -127 to 127.
func (k *Kernels) Quantise(dst []int8, x []float32, factor float32) {
	if len(x) != len(dst) {
		sameLength("Quantise", len(dst), len(x))
	}
	for n := k.bulk(len(x)); n > 0; n = k.bulk(len(x)) {
		k.compress.quantise(&dst[0], &x[0], n, factor)
		x, dst = x[n:], dst[n:]
	}
	for i, v := range x {
		dst[i] = int8(math.RoundToEven(float64(float32(v * factor))))
	}
}

// Dequantise computes dst[i] = x[i]*scale.
func (k *Kernels) Dequantise(dst []float32, x []int8, scale float32) {
	if len(x) != len(dst) {
		sameLength("Dequantise", len(dst), len(x))
	}
	for n := k.bulk(len(x)); n > 0; n = k.bulk(len(x)) {
		k.compress.dequantise(&dst[0], &x[0], n, scale)
		x, dst = x[n:], dst[n:]
	}
	for i, v := range x {
		dst[i] = float32(v) * scale
	}
}

// ToSigns packs the sign bits of x, eight a byte, the first into the lowest bit of the first byte;
// unused bits are 0. dst has (len(x)+7)/8 bytes.
func (k *Kernels) ToSigns(dst []byte, x []float32) {
	if len(dst) != (len(x)+7)/8 {
		sameLength("ToSigns", len(dst), (len(x)+7)/8)
	}
	for n := k.bulk(len(x)); n > 0; n = k.bulk(len(x)) {
		k.compress.toSigns(&dst[0], &x[0], n)
		x, dst = x[n:], dst[n/8:]
	}
	clear(dst)
	for i, v := range x {
		dst[i/8] |= byte(math.Float32bits(v)>>31) << (i % 8)
	}
}

// FromSigns writes scale, or -scale for a set bit: the inverse of ToSigns.
func (k *Kernels) FromSigns(dst []float32, x []byte, scale float32) {
	if len(x) != (len(dst)+7)/8 {
		sameLength("FromSigns", len(x), (len(dst)+7)/8)
	}
	for n := k.bulk(len(dst)); n > 0; n = k.bulk(len(dst)) {
		k.compress.fromSigns(&dst[0], &x[0], n, scale)
		dst, x = dst[n:], x[n/8:]
	}
	for i := range dst {
		dst[i] = scale
		if x[i/8]>>(i%8)&1 == 1 {
			dst[i] = -scale
		}
	}
}
