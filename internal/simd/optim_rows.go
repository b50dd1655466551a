package simd

import "fmt"

// MomentumRows is [Kernels.Momentum] without decay on rows of dim values: rows
// ids[i] of p and v with row i of g, as [Kernels.SGDRows].
func (k *Kernels) MomentumRows(p, v []float32, ids []int32, g []float32, dim int, lr, momentum, scale float32) {
	checkRows("MomentumRows", ids, g, dim, len(p), len(v))
	if k.opt.momentumRows == nil {
		for i, id := range ids {
			at := int(id) * dim
			for j, d := range g[i*dim:][:dim] {
				v[at+j] = flushed(float32(momentum*v[at+j]) + float32(d*scale))
				p[at+j] -= float32(lr * v[at+j])
			}
		}
		return
	}
	runs(len(ids), rowsOfCall(dim), func(at, n int) {
		k.opt.momentumRows(&p[0], &v[0], &ids[at], &g[at*dim], n, dim, k.rowMask(dim), lr, momentum, scale)
	})
}

// AdamOwnRows is [Kernels.AdamRows] with a bias correction for each row. w is [rows, 2]: the total
// weights of the averages m and v, 1 - Beta^t after t updates of the row, stored as averages of
// ones. First, for each row:
//
//	w[0] = Beta1*w[0] + Comp1;  w[1] = Beta2*w[1] + Comp2
//	Rate = lr/w[0];  Unbias = 1/sqrt(w[1])
//
// f.Rate and f.Unbias are ignored.
func (k *Kernels) AdamOwnRows(p, m, v, w []float32, ids []int32, g []float32, dim int, lr float32, f AdamFactors) {
	checkRows("AdamOwnRows", ids, g, dim, len(p), min(len(m), len(v)))
	checkFigures("AdamOwnRows", len(p)/dim, 2, len(w))
	if k.opt.adamOwnRows == nil {
		for i, id := range ids {
			own := w[2*id:][:2]
			own[0] = float32(f.Beta1*own[0]) + f.Comp1
			own[1] = float32(f.Beta2*own[1]) + f.Comp2
			f.Rate, f.Unbias = lr/own[0], 1/root32(own[1])
			at := int(id) * dim
			for j, d := range g[i*dim:][:dim] {
				adamGo(&p[at+j], &m[at+j], &v[at+j], d, &f)
			}
		}
		return
	}
	runs(len(ids), rowsOfCall(dim), func(at, n int) {
		k.opt.adamOwnRows(&p[0], &m[0], &v[0], &w[0], &ids[at], &g[at*dim], n, dim, k.rowMask(dim),
			f.Scale, f.Keep, f.Beta1, f.Comp1, f.Beta2, f.Comp2, lr, f.Eps)
	})
}

// RowWiseAdagrad is Adagrad with a single sum for each row: s is [rows]. Row ids[i] of p, of dim
// values, is updated with row i of g, with every operation rounded:
//
//	q = scale/scales[i];  rate = lr*sqrt(initial/(initial+s))
//	g' = g*q;  p = p - rate*g'
//	s = s + sum(g'*g')/dim
//
// The sum consists of eight sums, of the elements with equal index modulo 8 in order, added as
// (0+4)+(2+6) and (1+5)+(3+7). scales has a value for each id; nil means ones. The rest is as in
// [Kernels.SGDRows].
func (k *Kernels) RowWiseAdagrad(p, s []float32, ids []int32, g, scales []float32, dim int, lr, initial, scale float32) {
	checkRows("RowWiseAdagrad", ids, g, dim, len(p), len(p))
	checkFigures("RowWiseAdagrad", len(p)/dim, 1, len(s))
	if scales != nil && len(scales) != len(ids) {
		panic(fmt.Sprintf("simd: RowWiseAdagrad: %d scales for %d ids", len(scales), len(ids)))
	}
	if k.opt.rowWiseAdagrad == nil {
		for i, id := range ids {
			q := scale
			if scales != nil {
				q = scale / scales[i]
			}
			row := p[int(id)*dim:][:dim]
			s[id] += rowWiseGo(row, g[i*dim:][:dim], q, float32(lr*root32(initial/(initial+s[id])))) / float32(dim)
		}
		return
	}
	runs(len(ids), rowsOfCall(dim), func(at, n int) {
		each, step := &one, 0
		if scales != nil {
			each, step = &scales[at], 4
		}
		k.opt.rowWiseAdagrad(&p[0], &s[0], &ids[at], &g[at*dim], each, step, n, dim, k.rowMask(dim), lr, initial, float32(dim), scale)
	})
}

var one float32 = 1 // never written

// rowWiseGo updates a row and returns the sum of the squares of its gradient.
func rowWiseGo(row, g []float32, q, rate float32) float32 {
	var sum [8]float32
	for j, d := range g {
		d = float32(d * q)
		row[j] -= float32(rate * d)
		sum[j%8] += float32(d * d)
	}
	return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]))
}

// ClampRows limits values to [lo, hi] in rows ids of p, of dim values. NaN stays.
func (k *Kernels) ClampRows(p []float32, ids []int32, dim int, lo, hi float32) {
	checkRows("ClampRows", nil, nil, dim, len(p), len(p))
	checkIDs("ClampRows", ids, dim, len(p))
	if k.opt.clampRows == nil {
		for _, id := range ids {
			row := p[int(id)*dim:][:dim]
			for j, v := range row {
				if v > hi {
					v = hi
				}
				if v < lo {
					v = lo
				}
				row[j] = v
			}
		}
		return
	}
	runs(len(ids), rowsOfCall(dim), func(at, n int) {
		k.opt.clampRows(&p[0], &ids[at], n, dim, k.rowMask(dim), lo, hi)
	})
}

// checkFigures panics if a part of the state with width values for each row is too short.
func checkFigures(op string, rows, width, have int) {
	if have < rows*width {
		panic(fmt.Sprintf("simd: %s: %d figures of %d rows: want %d for each", op, have, rows, width))
	}
}
