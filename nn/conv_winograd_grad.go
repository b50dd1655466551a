package nn

import "github.com/ringo-ml/ringo/internal/simd"

// winogradSums is the largest number of points of weights that are summed separately for each part
// of the batch. With more, all tiles are transformed first, then sums are computed by blocks.
const winogradSums = 1 << 20

// Size of a block of the weights' gradient: input and output channels. Its points stay in the
// second-level cache.
const (
	blockIn  = 64
	blockOut = 128
)

// winogradWeights computes the gradient of the weights.
func (o *convOp) winogradWeights(t *Tape, k *simd.Kernels) {
	o.grid.k = k
	g := o.grid
	in, out := o.win.Channels, o.out
	if g.points*in*out <= winogradSums {
		parts := min(convParts/2, g.rows())
		o.packed.sums = sized(o.packed.sums, parts*o.sumLen())
		o.job.run(t, o, winogradPart, parts, g.rows(), 1)
		o.addParts(t, o.l.W, 0, parts)
		return
	}
	tiles := g.rows() * g.wide
	o.wino = winogradPass{from: o.inputs(o.x.Data), to: o.outputs(o.y.grad), grid: g, pad: o.win.Pad}
	o.wino.v = o.packed.v.all(g.points, tiles, in)
	o.wino.d = o.packed.d.all(g.points, tiles, out)
	o.job.share(t, o, winogradBoth, g.rows(), 1, 1)
	o.job.share(t, o, winogradBlocks, in, blockIn, 1)
}

// winogradPart sums the gradient of the weights over rows lo to hi-1 of tiles.
func winogradPart(o *convOp, w *worker, part, lo, hi int) {
	g, in, out := o.grid, o.win.Channels, o.out
	x, dy := o.inputs(o.x.Data), o.outputs(o.y.grad)
	u := w.pointsIn(bufWeights, g.points, in, out)
	step := g.block(in + out)
	for r := lo; r < hi; r += step {
		rows := min(step, hi-r)
		tiles := rows * g.wide
		v := w.pointsIn(bufPoints, g.points, tiles, in)
		d := w.pointsIn(bufProducts, g.points, tiles, out)
		for i := range rows {
			g.transform(w, simd.WinogradInput, v, i*g.wide, x, r+i, o.win.Pad, g.m+2)
			g.transform(w, simd.WinogradOutputGrad, d, i*g.wide, dy, r+i, 0, g.m)
		}
		w.points = simd.Points{
			Count: g.points, M: in, N: out, K: tiles,
			TransA: true, A: v.data, LDA: v.ld, AStep: v.point,
			B: d.data, LDB: d.ld, BStep: d.point,
			Accumulate: r > lo, C: u.data, LDC: u.ld, CStep: u.point,
		}
		g.k.GemmPoints(&w.gemm, &w.points)
	}
	dw, _ := o.partSums(part)
	dst := simd.Tiles{Data: dw, Tile: out, Row: 3 * in * out, Col: in * out}
	g.k.Winograd(&w.gemm, simd.WinogradWeightsGrad, g.m, dst, u.tiles(0, g.m+2), out, in, simd.WinogradEpilogue{})
}

// winogradBoth computes the points of rows lo to hi-1 of tiles, of the input
// and of the output's gradient.
func winogradBoth(o *convOp, w *worker, _, lo, hi int) {
	p := &o.wino
	for r := lo; r < hi; r++ {
		p.grid.transform(w, simd.WinogradInput, p.v, r*p.grid.wide, p.from, r, p.pad, p.grid.m+2)
		p.grid.transform(w, simd.WinogradOutputGrad, p.d, r*p.grid.wide, p.to, r, 0, p.grid.m)
	}
}

// winogradBlocks computes the gradient of the weights of input channels lo to
// hi-1 from the points of all tiles.
func winogradBlocks(o *convOp, w *worker, _, lo, hi int) {
	for i := lo; i < hi; i += blockIn {
		for j := 0; j < o.out; j += blockOut {
			o.winogradBlock(w, i, min(blockIn, hi-i), j, min(blockOut, o.out-j))
		}
	}
}

func (o *convOp) winogradBlock(w *worker, i, rows, j, cols int) {
	p, g := &o.wino, o.grid
	tiles := g.rows() * g.wide
	u := w.pointsIn(bufWeights, g.points, rows, cols)
	w.points = simd.Points{
		Count: g.points, M: rows, N: cols, K: tiles,
		TransA: true, A: p.v.data[i:], LDA: p.v.ld, AStep: p.v.point,
		B: p.d.data[j:], LDB: p.d.ld, BStep: p.d.point,
		C: u.data, LDC: u.ld, CStep: u.point,
	}
	g.k.GemmPoints(&w.gemm, &w.points)
	in, out := o.win.Channels, o.out
	dst := simd.Tiles{Data: o.l.W.Grad[i*out+j:], Tile: out, Row: 3 * in * out, Col: in * out}
	if !o.l.W.touched {
		g.k.Winograd(&w.gemm, simd.WinogradWeightsGrad, g.m, dst, u.tiles(0, g.m+2), cols, rows, simd.WinogradEpilogue{})
		return
	}
	more := simd.Tiles{Data: w.floats(bufCols, 9*rows*cols), Tile: cols, Row: 3 * rows * cols, Col: rows * cols}
	g.k.Winograd(&w.gemm, simd.WinogradWeightsGrad, g.m, more, u.tiles(0, g.m+2), cols, rows, simd.WinogradEpilogue{})
	for q := range 9 {
		w.k.AddToRows(dst.Data[q*in*out:], out, more.Data[q*rows*cols:], cols, rows, cols)
	}
}
