package simd

import (
	"fmt"
	"math"
	"unsafe"
)

// WinogradOp is a transform of a 3x3 convolution of stride 1 after Winograd: F(m x m, 3x3) computes
// m x m outputs from (m+2)² products at (m+2)² points, instead of 9m² (Lavin and Gray, "Fast
// Algorithms for Convolutional Neural Networks", 2016).
type WinogradOp uint8

const (
	// WinogradInput is BᵀdB, from (m+2)x(m+2) values to points.
	WinogradInput WinogradOp = iota
	// WinogradOutput is AᵀmA, from points to m x m values.
	WinogradOutput
	// WinogradOutputGrad is AdAᵀ, from m x m values to points: the transpose of WinogradOutput.
	WinogradOutputGrad
	// WinogradWeights is GgGᵀ, from 3x3 weights to points.
	WinogradWeights
	// WinogradWeightsGrad is GᵀgG, from points to 3x3 weights: the transpose of WinogradWeights.
	WinogradWeightsGrad
)

// sides returns the number of a tile's values in each direction before and after.
func (op WinogradOp) sides(m int) (from, to int) {
	switch op {
	case WinogradInput:
		return m + 2, m + 2
	case WinogradOutput:
		return m + 2, m
	case WinogradOutputGrad:
		return m, m + 2
	case WinogradWeights:
		return 3, m + 2
	}
	return m + 2, 3
}

// Tiles is a run of tiles of vectors of channels: channel c of value (i,j) of
// tile t is Data[t*Tile + i*Row + j*Col + c].
type Tiles struct {
	Data           []float32
	Tile, Row, Col int
}

// WinogradEpilogue is applied to the values of WinogradOutput: bias, one per channel or nil, then
// ReLU.
type WinogradEpilogue struct {
	Bias []float32
	ReLU bool
}

type winogradKernel func(dst *float32, dstRow, dstCol, dstNext int, src *float32, srcRow, srcCol, srcNext int, tmp *float32, vectors, tiles int)
type winogradBiasKernel func(dst *float32, dstRow, dstCol, dstNext int, src *float32, srcRow, srcCol, srcNext int, tmp *float32, vectors, tiles int, bias *float32, biasStep int, floor float32)

// winogradLevel holds a level's transforms for m = 2 and m = 4, by operation.
// width 0: all is portable.
type winogradLevel struct {
	width  int
	by     [2][5]winogradKernel
	output [2]winogradBiasKernel
}

// winogradCall is the maximum number of vectors of a tile in one call.
const winogradCall = 1024

// Winograd applies op, for m = 2 or 4, to count tiles of channels values, a multiple of 16, or of
// half a panel's width. dst and src must not overlap. It panics if they are too short. Products are
// fused if the level fuses them.
func (k *Kernels) Winograd(s *Scratch, op WinogradOp, m int, dst, src Tiles, channels, count int, e WinogradEpilogue) {
	from, to := op.sides(m)
	if channels%max(8, k.winograd.width) != 0 || m != 2 && m != 4 || e.Bias != nil && len(e.Bias) < channels {
		panic(fmt.Sprintf("simd: Winograd: m %d, %d channels, %d biases", m, channels, len(e.Bias)))
	}
	src.check("source", from, channels, count)
	dst.check("destination", to, channels, count)
	if k.winograd.width == 0 {
		winogradGo(op, m, dst, src, channels, count, e)
		return
	}
	vectors := channels / k.winograd.width
	each := max(1, winogradCall/max(1, vectors))
	for lo := 0; lo < count && channels > 0; lo += each {
		k.winogradRun(s, op, m, dst.from(lo), src.from(lo), vectors, min(each, count-lo), e)
	}
}

func (t Tiles) check(name string, side, channels, count int) {
	if count > 0 && channels > 0 && len(t.Data) < (count-1)*t.Tile+(side-1)*(t.Row+t.Col)+channels {
		panic(fmt.Sprintf("simd: Winograd: the %s has %d values, too few for %d tiles of %dx%dx%d (strides %d, %d, %d)", name, len(t.Data), count, side, side, channels, t.Tile, t.Row, t.Col))
	}
}

func (t Tiles) from(i int) Tiles {
	t.Data = t.Data[i*t.Tile:]
	return t
}

func (k *Kernels) winogradRun(s *Scratch, op WinogradOp, m int, dst, src Tiles, vectors, count int, e WinogradEpilogue) {
	done := vectors * k.winograd.width
	dr, dc, dn := 4*dst.Row, 4*dst.Col, 4*(dst.Tile-done)
	sr, sc, sn := 4*src.Row, 4*src.Col, 4*(src.Tile-done)
	tmp := s.lines()
	if op != WinogradOutput {
		k.winograd.by[m/4][op](&dst.Data[0], dr, dc, dn, &src.Data[0], sr, sc, sn, tmp, vectors, count)
		return
	}
	bias, step, floor := &noBias[0], 0, float32(math.Inf(-1))
	if e.Bias != nil {
		bias, step = &e.Bias[0], 4*k.winograd.width
	}
	if e.ReLU {
		floor = 0
	}
	k.winograd.output[m/4](&dst.Data[0], dr, dc, dn, &src.Data[0], sr, sc, sn, tmp, vectors, count, bias, step, floor)
}

// noBias is read without a bias. Never written.
var noBias [16]float32

// lines returns memory for 36 vectors, at the start of a cache line.
func (s *Scratch) lines() *float32 {
	past := uintptr(unsafe.Pointer(&s.points)) % 64
	return &s.points[(64-past)%64/4]
}

// winogradGo is the transform, value by value.
func winogradGo(op WinogradOp, m int, dst, src Tiles, channels, count int, e WinogradEpilogue) {
	from, to := op.sides(m)
	f := winogradOne[m/4][op]
	var tmp [6][6]float32
	var in, out [6]float32
	for t := range count {
		for c := range channels {
			for j := range from {
				for i := range from {
					in[i] = src.Data[t*src.Tile+i*src.Row+j*src.Col+c]
				}
				f(&out, &in)
				for i := range to {
					tmp[i][j] = out[i]
				}
			}
			for i := range to {
				f(&out, &tmp[i])
				for j := range to {
					v := out[j]
					if e.Bias != nil {
						v += e.Bias[c]
					}
					if e.ReLU && v < 0 {
						v = 0
					}
					dst.Data[t*dst.Tile+i*dst.Row+j*dst.Col+c] = v
				}
			}
		}
	}
}

// winogradOne holds the one-dimensional transforms by m and operation.
var winogradOne = [2][5]func(y, x *[6]float32){
	{
		func(y, x *[6]float32) { *y = [6]float32{x[0] - x[2], x[1] + x[2], x[2] - x[1], x[1] - x[3]} },
		func(y, x *[6]float32) { *y = [6]float32{x[0] + x[1] + x[2], x[1] - x[2] - x[3]} },
		func(y, x *[6]float32) { *y = [6]float32{x[0], x[0] + x[1], x[0] - x[1], -x[1]} },
		func(y, x *[6]float32) {
			p, q := (x[0]+x[2])/2, x[1]/2
			*y = [6]float32{x[0], p + q, p - q, x[2]}
		},
		func(y, x *[6]float32) {
			p, q := (x[1]+x[2])/2, (x[1]-x[2])/2
			*y = [6]float32{x[0] + p, q, p + x[3]}
		},
	},
	{
		func(y, x *[6]float32) {
			p, q, r, s := x[4]-4*x[2], x[3]-4*x[1], x[4]-x[2], 2*(x[3]-x[1])
			*y = [6]float32{4*x[0] - 5*x[2] + x[4], p + q, p - q, r + s, r - s, 4*x[1] - 5*x[3] + x[5]}
		},
		func(y, x *[6]float32) {
			p, q, r, s := x[1]+x[2], x[1]-x[2], x[3]+x[4], x[3]-x[4]
			*y = [6]float32{x[0] + p + r, q + 2*s, p + 4*r, q + 8*s + x[5]}
		},
		func(y, x *[6]float32) {
			p, q, r, s := x[0]+x[2], x[1]+x[3], x[0]+4*x[2], 2*(x[1]+4*x[3])
			*y = [6]float32{x[0], p + q, p - q, r + s, r - s, x[3]}
		},
		func(y, x *[6]float32) {
			p, q, r, s := (x[0]+x[2])/6, x[1]/6, x[0]/24+x[2]/6, x[1]/12
			*y = [6]float32{x[0] / 4, -p - q, -p + q, r + s, r - s, x[2]}
		},
		func(y, x *[6]float32) {
			p, q, r, s := (x[1]+x[2])/6, (x[2]-x[1])/6, x[3]+x[4], x[3]-x[4]
			*y = [6]float32{x[0]/4 - p + r/24, q + s/12, x[5] - p + r/6}
		},
	},
}
