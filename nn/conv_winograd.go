package nn

import "github.com/ringo-ml/ringo/internal/simd"

// winograd computes 3x3 convolutions of stride 1 by tiles (Lavin and Gray 2016). Tiles of m x m
// outputs take (m+2)² products per pair of channels instead of 9m²: a quarter for m = 4. Every tile
// becomes (m+2)² points, and the tiles' values at each point are multiplied with the weights'
// values at the point:
//
//	forward   M[p] = V[p] U[p]        V = BᵀxB, U = GwGᵀ, y = AᵀMA
//	weights   U'[p] += V[p]ᵀ D[p]     D = A dy Aᵀ, dW = GᵀU'G
//	input     a forward pass over dy with the weights turned round
//
// Rounding errors are several times as large as for a direct sum: about 1e-6 of the largest value
// for m = 4.
type winograd struct{}

// winogradPays reports whether Winograd's algorithm is faster than a product with windows.
func winogradPays(win simd.Windows, out int, cfg Conv) bool {
	return win.KernelHeight == 3 && win.KernelWidth == 3 && max(1, win.Stride) == 1 && win.Pad <= 2 && !cfg.MaxPool2 &&
		win.Channels%lineValues == 0 && out%lineValues == 0
}

// tileGrid divides images into tiles. A row of tiles is within one image.
type tileGrid struct {
	k          *simd.Kernels // kernels of transforms and products
	m, points  int           // outputs of a tile's side, points of a tile
	images     int
	high, wide int // tiles of an image
}

func newTileGrid(k *simd.Kernels, images, h, w int) tileGrid {
	m := 4
	if h <= 2 && w <= 2 {
		m = 2
	}
	return tileGrid{k: k, m: m, points: (m + 2) * (m + 2), images: images, high: (h + m - 1) / m, wide: (w + m - 1) / m}
}

// few reports whether a pass over this number of places is faster with windows, because it has few
// tiles: if weights are used for few products each, the time to read them dominates, and their
// points are up to four times as many values. made reports whether these points exist.
func (g tileGrid) few(places int, made bool) bool {
	const reading, making = 10, 40 // cost of a weight, a point, in multiplications
	tiles := max(g.rows()*g.wide, reading)
	if !made {
		tiles += making
	}
	return 9*max(places, reading) < g.points*tiles
}

// rows is the number of rows of tiles of the batch.
func (g tileGrid) rows() int { return g.images * g.high }

// blockFloats is the approximate number of point values in a block of tiles, so that these and the
// products stay in the second-level cache.
const blockFloats = 128 << 10

// block returns the number of rows of tiles processed at a time.
func (g tileGrid) block(channels int) int {
	tiles := max(28, blockFloats/(g.points*channels))
	return max(1, min(tiles/g.wide, g.rows()))
}

// plane is a matrix [points][tiles][channels]. The distance between points is an odd number of
// cache lines, so that points do not share a set of the cache; the same holds for rows.
type plane struct {
	data      []float32
	ld, point int
}

func planeSize(points, tiles, channels int) (ld, point, size int) {
	ld = channels
	if channels >= 256 {
		ld += lineValues
	}
	point = tiles*ld | lineValues
	return ld, point, points * point
}

// pointsIn returns a plane in working memory i of the worker.
func (w *worker) pointsIn(i, points, tiles, channels int) plane {
	ld, point, size := planeSize(points, tiles, channels)
	return plane{w.floats(i, size), ld, point}
}

// tiles is the view of the plane that begins at a tile, for a Winograd transform from or to tiles
// of side x side points.
func (p plane) tiles(tile, side int) simd.Tiles {
	return simd.Tiles{Data: p.data[tile*p.ld:], Tile: p.ld, Row: side * p.point, Col: p.point}
}

// image is a batch of channels-last images.
type image struct {
	data                    []float32
	height, width, channels int
}

// strip copies lines of image s from y on, and columns from x on, with zeros outside of it.
func (im image) strip(dst []float32, s, y, x, lines, columns int) {
	c := im.channels
	lo, hi := max(0, -x), max(max(0, -x), min(columns, im.width-x))
	for i := range lines {
		line := dst[i*columns*c : (i+1)*columns*c]
		if iy := y + i; iy < 0 || iy >= im.height || lo == hi {
			clear(line)
			continue
		}
		clear(line[:lo*c])
		at := ((s*im.height+y+i)*im.width + x + lo) * c
		copy(line[lo*c:hi*c], im.data[at:])
		clear(line[hi*c:])
	}
}

// transform writes the points of tile row r of im to v from tile on; the first tile begins pad
// lines above the image. Tiles inside the image are read in place, all other tiles from a copy with
// zeros around.
func (g tileGrid) transform(w *worker, op simd.WinogradOp, v plane, tile int, im image, r, pad, side int) {
	s, y := r/g.high, r%g.high*g.m-pad
	first, last := 0, 0
	if y >= 0 && y+side <= im.height && im.width+pad >= side {
		first = min((pad+g.m-1)/g.m, g.wide)
		last = max(first, min(g.wide, (im.width-side+pad)/g.m+1))
	}
	g.copied(w, op, v, tile, im, s, y, pad, side, 0, first)
	if last > first {
		c := im.channels
		at := ((s*im.height+y)*im.width + first*g.m - pad) * c
		src := simd.Tiles{Data: im.data[at:], Tile: g.m * c, Row: im.width * c, Col: c}
		g.k.Winograd(&w.gemm, op, g.m, v.tiles(tile+first, g.m+2), src, c, last-first, simd.WinogradEpilogue{})
	}
	g.copied(w, op, v, tile, im, s, y, pad, side, last, g.wide)
}

// copied transforms tiles lo to hi-1 of a row from a copy.
func (g tileGrid) copied(w *worker, op simd.WinogradOp, v plane, tile int, im image, s, y, pad, side, lo, hi int) {
	if lo == hi {
		return
	}
	columns := (hi-lo)*g.m + side - g.m
	strip := w.floats(bufStrip, side*columns*im.channels)
	im.strip(strip, s, y, lo*g.m-pad, side, columns)
	src := simd.Tiles{Data: strip, Tile: g.m * im.channels, Row: columns * im.channels, Col: im.channels}
	g.k.Winograd(&w.gemm, op, g.m, v.tiles(tile+lo, g.m+2), src, im.channels, hi-lo, simd.WinogradEpilogue{})
}

// output computes the outputs of tile row r, `channels` channels from c0 on, from products.
func (g tileGrid) output(w *worker, im image, c0, channels, r int, products plane, tile int, e simd.WinogradEpilogue) {
	y, s := r%g.high*g.m, r/g.high
	src := products.tiles(tile, g.m+2)
	if (g.high*g.m == im.height) && g.wide*g.m == im.width {
		at := ((s*im.height+y)*im.width)*im.channels + c0
		dst := simd.Tiles{Data: im.data[at:], Tile: g.m * im.channels, Row: im.width * im.channels, Col: im.channels}
		g.k.Winograd(&w.gemm, simd.WinogradOutput, g.m, dst, src, channels, g.wide, e)
		return
	}
	columns := g.wide * g.m
	strip := w.floats(bufStrip, g.m*columns*channels)
	dst := simd.Tiles{Data: strip, Tile: g.m * channels, Row: columns * channels, Col: channels}
	g.k.Winograd(&w.gemm, simd.WinogradOutput, g.m, dst, src, channels, g.wide, e)
	for i := range min(g.m, im.height-y) {
		at := ((s*im.height+y+i)*im.width)*im.channels + c0
		w.k.CopyRows(im.data[at:], im.channels, strip[i*columns*channels:], channels, im.width, channels)
	}
}

// winogradPass is a convolution of one batch of images to another: forward, or the gradient of the
// input, with rotated weights.
type winogradPass struct {
	from, to image
	grid     tileGrid
	pad      int
	turned   bool
	e        simd.WinogradEpilogue
	v, d     plane // points of all tiles, if parts share them
	stride   int   // distance of two points' weights
}

func (o *convOp) inputs(data []float32) image {
	return image{data, o.win.Height, o.win.Width, o.win.Channels}
}

func (o *convOp) outputs(data []float32) image {
	return image{data, o.win.OutHeight(), o.win.OutWidth(), o.out}
}

func (winograd) forward(o *convOp, t *Tape) {
	o.wino = winogradPass{from: o.inputs(o.x.Data), to: o.outputs(o.y.Data), grid: o.grid, pad: o.win.Pad}
	o.wino.e = simd.WinogradEpilogue{Bias: o.bias(), ReLU: o.cfg.Activation == ReLU}
	o.winogradRun(t)
}

func (winograd) backward(o *convOp, t *Tape) {
	t.watch.turn(t, "weights")
	k := o.gradKernels(t)
	o.winogradWeights(t, k)
	o.biasGrad(t)
	if o.dx == nil {
		return
	}
	t.watch.turn(t, "input")
	p := winogradPass{from: o.outputs(o.y.grad), to: o.inputs(o.dx), pad: 2 - o.win.Pad, turned: true}
	p.grid = newTileGrid(k, o.x.Shape[0], o.win.Height, o.win.Width)
	o.wino = p
	o.winogradRun(t)
}

// roundedChannels is the least number of channels for which products gain more than the rounding of
// points costs.
const roundedChannels = 64

// gradKernels returns the kernels of the gradients. With bf16 and many channels these round points
// to bfloat16, because such products need half as many instructions. Points of the forward pass are
// never rounded: their error is about five times that of rounded windows.
func (o *convOp) gradKernels(t *Tape) *simd.Kernels {
	if min(o.win.Channels, o.out) < roundedChannels {
		return t.k.Single()
	}
	return t.k
}

// winogradRun computes a pass. With more tiles than channels, it computes the weights' points
// first, and blocks of tiles use all of them; with fewer, it computes the tiles' points first, and
// panels of weights use all tiles. Only a panel or block of the other points is in memory.
func (o *convOp) winogradRun(t *Tape) {
	p := &o.wino
	width := t.k.PanelWidth()
	in, out := p.from.channels, p.to.channels
	tiles := p.grid.rows() * p.grid.wide
	if out >= 256 && tiles < out && t.packedWeights == nil {
		p.v = o.packed.v.all(p.grid.points, tiles, in)
		p.stride = width*min(panelRows, in) | lineValues
		o.job.share(t, o, winogradInputs, p.grid.rows(), 1, 1)
		o.job.share(t, o, winogradPanels, out, width, 1)
		return
	}
	w, fresh := t.weightsOf(o.l.W, p.grid.m)
	o.w = w
	if fresh {
		p.stride = (out+width-1)/width*width*in | lineValues
		w.u = sized(w.u, p.grid.points*p.stride)
		for q := range p.grid.points {
			p.grid.k.PanelsIn(&w.points[q], w.u[q*p.stride:], in, out)
		}
		if p.rounded() {
			p.stride = width*in | lineValues
			o.job.share(t, o, winogradRoundedPanels, out, width, 1)
		} else {
			o.job.share(t, o, winogradWeightPanels, (out+width-1)/width*p.blocks(), 1, 1)
		}
	}
	o.job.share(t, o, winogradTiles, p.grid.rows(), 1, p.grid.block(in+out))
}

// all makes a plane of all tiles.
func (b *sharedPlane) all(points, tiles, channels int) plane {
	ld, point, size := planeSize(points, tiles, channels)
	b.data = sized(b.data, size)
	return plane{b.data, ld, point}
}

// sharedPlane is the memory of a plane.
type sharedPlane struct{ data []float32 }

// blocks returns the number of blocks of input channels that threads transform separately for a
// panel of weights, each at least a cache line.
func (p *winogradPass) blocks() int { return min(4, (p.from.channels+lineValues-1)/lineValues) }

// rounded reports whether operands of products are pairs of bfloat16 values.
func (p *winogradPass) rounded() bool { return p.grid.k != p.grid.k.Single() }

// winogradRoundedPanels computes the points of output channels lo to hi-1 of the weights, rounded.
func winogradRoundedPanels(o *convOp, w *worker, _, lo, hi int) {
	p := &o.wino
	in, width := p.from.channels, w.k.PanelWidth()
	for c := lo; c < hi; c += width {
		n := min(width, p.to.channels-c)
		u := w.floats(bufCols, p.grid.points*p.stride)
		o.panel(w, c, 0, in, u)
		for q := range p.grid.points {
			p.grid.k.PanelsOf(&w.panels[0], &o.w.points[q], c, c+n)
			p.grid.k.PackB(&w.panels[0], false, in, n, u[q*p.stride:], width)
		}
	}
}

// winogradWeightPanels computes the points of blocks lo to hi-1 of the weights, panel by panel.
func winogradWeightPanels(o *convOp, w *worker, _, lo, hi int) {
	p := &o.wino
	blocks, in, width := p.blocks(), p.from.channels, w.k.PanelWidth()
	for b := lo; b < hi; {
		panel := b / blocks
		end := min(hi, (panel+1)*blocks)
		first, last := in*(b%blocks)/blocks, in*(end-panel*blocks)/blocks
		o.panel(w, panel*width, first, last-first, o.w.u[panel*width*in+first*width:])
		b = end
	}
}

// panel writes the points of the weights from input channels i to i+rows-1 to output channels from
// c on to u: a panel for each point, stride apart.
func (o *convOp) panel(w *worker, c, i, rows int, u []float32) {
	p := &o.wino
	width, in, side := w.k.PanelWidth(), p.from.channels, p.grid.m+2
	n := min(width, p.to.channels-c)
	dst := simd.Tiles{Data: u, Tile: width, Row: side * p.stride, Col: p.stride}
	taps := o.l.W.Shape[2] * o.l.W.Shape[3]
	if !p.turned {
		src := simd.Tiles{Data: o.l.W.Data[i*o.out+c:], Tile: o.out, Row: 3 * taps, Col: taps}
		p.grid.k.Winograd(&w.gemm, simd.WinogradWeights, p.grid.m, dst, src, n, rows, simd.WinogradEpilogue{})
		return
	}
	size := width * rows
	turned := w.floats(bufWeights, 9*size)
	for q := range 9 {
		w.k.Single().PanelsIn(&w.panels[0], turned[(8-q)*size:], rows, n)
		w.k.Single().PackB(&w.panels[0], true, rows, n, o.l.W.Data[q*taps+c*in+i:], in)
	}
	src := simd.Tiles{Data: turned, Tile: width, Row: 3 * size, Col: size}
	p.grid.k.Winograd(&w.gemm, simd.WinogradWeights, p.grid.m, dst, src, width, rows, simd.WinogradEpilogue{})
}

// winogradTiles computes rows lo to hi-1 of tiles with the weights' points.
func winogradTiles(o *convOp, w *worker, _, lo, hi int) {
	p := &o.wino
	g, in, out := p.grid, p.from.channels, p.to.channels
	step := g.block(in + out)
	blocks := max(1, (hi-lo+step/2)/step) // about equal blocks
	for b := range blocks {
		r := lo + (hi-lo)*b/blocks
		rows := lo + (hi-lo)*(b+1)/blocks - r
		tiles := rows * g.wide
		v := w.pointsIn(bufPoints, g.points, tiles, in)
		for i := range rows {
			g.transform(w, simd.WinogradInput, v, i*g.wide, p.from, r+i, p.pad, g.m+2)
		}
		d := w.pointsIn(bufProducts, g.points, tiles, out)
		w.points = simd.Points{
			Count: g.points, M: tiles, N: out, K: in,
			A: v.data, LDA: v.ld, AStep: v.point,
			Packed: o.w.points[:g.points],
			C:      d.data, LDC: d.ld, CStep: d.point,
		}
		g.k.GemmPoints(&w.gemm, &w.points)
		for i := range rows {
			g.output(w, p.to, 0, out, r+i, d, i*g.wide, p.e)
		}
	}
}

// winogradInputs computes the points of rows lo to hi-1 of tiles.
func winogradInputs(o *convOp, w *worker, _, lo, hi int) {
	p := &o.wino
	for r := lo; r < hi; r++ {
		p.grid.transform(w, simd.WinogradInput, p.v, r*p.grid.wide, p.from, r, p.pad, p.grid.m+2)
	}
}

// panelRows is the number of input channels of a panel's points computed at a time: they stay in
// the second-level cache.
const panelRows = 128

// winogradPanels computes output channels lo to hi-1 of all tiles.
func winogradPanels(o *convOp, w *worker, _, lo, hi int) {
	p := &o.wino
	g, in, width := p.grid, p.from.channels, w.k.PanelWidth()
	tiles := g.rows() * g.wide
	for c := lo; c < hi; c += width {
		n := min(width, p.to.channels-c)
		u := w.floats(bufCols, g.points*p.stride)
		d := w.pointsIn(bufProducts, g.points, tiles, n)
		for i := 0; i < in; i += panelRows {
			rows := min(panelRows, in-i)
			o.panel(w, c, i, rows, u)
			for q := range g.points {
				if at := u[q*p.stride:]; p.rounded() {
					size := (rows + 1) / 2 * width
					g.k.PanelsIn(&w.panels[q], w.floats(bufPoints, g.points*size)[q*size:], rows, n)
					g.k.PackB(&w.panels[q], false, rows, n, at, width)
				} else {
					g.k.PanelsIn(&w.panels[q], at, rows, n)
				}
			}
			w.points = simd.Points{
				Count: g.points, M: tiles, N: n, K: rows,
				A: p.v.data[i:], LDA: p.v.ld, AStep: p.v.point,
				Packed: w.panels[:g.points], Accumulate: i > 0,
				C: d.data, LDC: d.ld, CStep: d.point,
			}
			g.k.GemmPoints(&w.gemm, &w.points)
		}
		e := p.e
		if e.Bias != nil {
			e.Bias = e.Bias[c : c+n]
		}
		for r := range g.rows() {
			g.output(w, p.to, c, n, r, d, r*g.wide, e)
		}
	}
}
