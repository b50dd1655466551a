package simd

import (
	"errors"
	"math"
)

// pairLevel rounds operands of products to pairs of bfloat16 values, each in the memory of a
// float32: the value of an even k in the lower half, of k+1 in the upper half. Values round to
// nearest, ties to even; values below the normal range become 0, and NaNs stay NaN, quiet.
type pairLevel struct {
	// rows rounds n rows of columns floats to rows of pairs, with 0 after an odd number.
	rows func(dst *float32, ldd int, src *float32, lds, columns, n int)
	// between rounds 2n rows of columns floats (at most 32) to n rows of pairs, with zeros up to
	// width pairs.
	between func(dst *float32, ldd int, src *float32, lds, columns, width, n int)
	// columns rounds 16 rows of 32*n floats and writes the transposed pairs to a panel of width nr.
	columns func(dst *float32, src *float32, lds, n int)
}

// BF16 returns the kernels of [Host] with products of bfloat16 operands, or the reason why this
// processor has none. Matrices stay float32 in memory, and are rounded when packed. Sums are
// float32, and values below the normal range become 0. The first call tests AMX, if present.
//
// AVX512-BF16 adds the second and then the first product of each pair. AMX adds the first products
// of 16 pairs, separately the second products, and then both to the sum.
func BF16() (*Kernels, error) {
	k := bf16()
	if k == nil {
		return nil, errors.New("this processor has no products of bfloat16 (AVX512-BF16)")
	}
	return k, nil
}

// Single returns the kernels with products of float32 operands: k, or Host for [BF16].
func (k *Kernels) Single() *Kernels {
	if k.gemm.pair != nil {
		return Host()
	}
	return k
}

// depth is the number of steps of a micro-kernel for kc products.
func (l *gemmLevel) depth(kc int) int {
	if l.pair != nil {
		return (kc + 1) / 2
	}
	return kc
}

// pack rounds rows of columns floats to rows of pairs.
func (p *pairLevel) pack(dst []float32, ldd int, src []float32, lds, columns, rows int) {
	if columns == 0 {
		return
	}
	step := max(1, callFloats/columns)
	for i := 0; i < rows; i += step {
		n := min(step, rows-i)
		to, from := dst[i*ldd:], src[i*lds:]
		_, _ = to[(n-1)*ldd+(columns+1)/2-1], from[(n-1)*lds+columns-1]
		p.rows(&to[0], ldd, &from[0], lds, columns, n)
	}
}

// interleave rounds kc rows of columns floats to rows of pairs, each of two rows. Pairs up to
// width, a multiple of 32 if above the columns, are 0.
func (p *pairLevel) interleave(dst []float32, ldd int, src []float32, lds, columns, width, kc int) {
	const step = callFloats / 64
	for j := 0; j < columns; j += 32 {
		c, w := min(32, columns-j), min(32, width-j)
		for i := 0; i < kc/2; i += step {
			n := min(step, kc/2-i)
			to, from := dst[i*ldd+j:], src[2*i*lds+j:]
			_, _ = to[(n-1)*ldd+w-1], from[(2*n-1)*lds+c-1]
			p.between(&to[0], ldd, &from[0], lds, c, w, n)
		}
	}
	if kc%2 != 0 { // the last row has no second
		to, from := dst[kc/2*ldd:][:width], src[(kc-1)*lds:]
		clear(to)
		for j := range columns {
			to[j] = pairOf(from[j], 0)
		}
	}
}

// packColumns transposes and rounds: src row j (of stride lds) becomes column j of pairs. Blocks of
// the kernel may overlap.
func (p *pairLevel) packColumns(panel, src []float32, lds, kc, columns, width int) {
	if columns < width {
		clear(panel)
	}
	done := 0
	if whole := kc / 2 * 2; whole >= 32 && columns >= 16 {
		const most = kcMax / 32 // limits a call's time
		for next := 0; next < columns; next += 16 {
			j := min(next, columns-16)
			for k := 0; k < whole; {
				blocks := min(most, (whole-k)/32)
				if blocks == 0 {
					k, blocks = whole-32, 1
				}
				from := src[j*lds+k:]
				_ = from[15*lds+32*blocks-1]
				p.columns(&panel[k/2*width+j], &from[0], lds, blocks)
				k += 32 * blocks
			}
		}
		done = whole / 2
	}
	for i := done; 2*i < kc; i++ {
		for j := range columns {
			at := src[j*lds+2*i:]
			var second float32
			if 2*i+1 < kc {
				second = at[1]
			}
			panel[i*width+j] = pairOf(at[0], second)
		}
	}
}

// pairOf is the pair of two rounded values.
func pairOf(first, second float32) float32 {
	return math.Float32frombits(uint32(toNormalBrain(first)) | uint32(toNormalBrain(second))<<16)
}

// toNormalBrain is toBrain with 0 for values below the normal range.
func toNormalBrain(x float32) uint16 {
	if bits := math.Float32bits(x); bits&0x7f800000 == 0 {
		return uint16(bits >> 16 & 0x8000)
	}
	return toBrain(x)
}

// packPairs prepares A as packA does, rounded to pairs.
func (g *product) packPairs(first, end, k0, kc int) {
	rows, depth := g.row(end)-g.first, g.k.depth(kc)
	a := g.a.at(g.first, k0)
	switch {
	case g.a.rows != nil && !g.a.transposed:
		a = matrix{grow(&g.s.r, rows*oddStride(kc)), oddStride(kc), 1}
		g.a.rows.PackRows(a.data, a.rs, g.first, rows, k0, kc)
	case g.a.rows != nil:
		a = matrix{grow(&g.s.r, kc*oddStride(rows)), 1, oddStride(rows)}
		g.a.rows.PackRows(a.data, a.cs, k0, kc, g.first, rows)
	}
	if a.cs == 1 {
		g.ready = matrix{grow(&g.s.a, rows*oddStride(depth)), oddStride(depth), 1}
		g.k.pair.pack(g.ready.data, g.ready.rs, a.data, a.rs, kc, rows)
		return
	}
	pairs := matrix{grow(&g.s.pairs, depth*oddStride(rows)), 1, oddStride(rows)}
	g.k.pair.interleave(pairs.data, pairs.cs, a.data, a.cs, rows, rows, kc)
	if g.k.rowPairs {
		ld := oddStride(depth)
		g.ready = matrix{grow(&g.s.a, rows*ld), ld, 1}
		d := denseB{level: g.k, data: pairs.data, ns: pairs.cs, ks: 1}
		d.packColumns(g.ready.data, pairs.data, rows, depth, ld)
		return
	}
	g.packTiles(pairs, first, end, depth)
}
