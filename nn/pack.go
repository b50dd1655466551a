package nn

import "github.com/ringo-ml/ringo/internal/simd"

// packJob packs the right-hand matrix of products, op(B)[kk, n], panel by panel.
type packJob struct {
	dst    *simd.PackedB
	width  int
	trans  bool
	kk, n  int
	b      []float32
	ldb    int
	panels int
	cuts   int
}

// packValues is the least number of values for which a part of packing is worth its cost: packing
// them takes about 5 us, and waking another thread 1 us.
const packValues = 4 << 10

// pack does the same as Kernels.PackB, on all threads.
func (t *Tape) pack(dst *simd.PackedB, trans bool, kk, n int, b []float32, ldb int) {
	if t.pool.dry {
		return
	}
	cuts := 1
	if t.pool.threads() > 1 {
		width := t.k.PanelWidth()
		cuts = t.pool.cut(min((n+width-1)/width, kk*n/packValues), 1)
	}
	if cuts == 1 {
		t.k.PackB(dst, trans, kk, n, b, ldb)
		return
	}
	j := &t.packing
	*j = packJob{dst: dst, trans: trans, kk: kk, n: n, b: b, ldb: ldb, cuts: cuts}
	_, j.width = t.k.Panels(dst, kk, n)
	j.panels = (n + j.width - 1) / j.width
	t.pool.run(j, cuts)
	*j = packJob{}
}

func (j *packJob) part(w *worker, i int) {
	lo, hi := j.panels*i/j.cuts*j.width, min(j.n, j.panels*(i+1)/j.cuts*j.width)
	b := j.b[lo:]
	if j.trans {
		b = j.b[lo*j.ldb:]
	}
	into := &w.panels[0]
	w.k.PanelsOf(into, j.dst, lo, hi)
	w.k.PackB(into, j.trans, j.kk, hi-lo, b, j.ldb)
}

// weights is a parameter prepared for products: a packed matrix, or the points of a Winograd
// convolution.
type weights struct {
	packed simd.PackedB
	points [36]simd.PackedB // views of u, by point
	u      []float32
	made   bool
}

// weightsKey identifies prepared weights. A parameter may be read as a matrix, and for tiles of
// either size.
type weightsKey struct {
	p    *Param
	tile int // outputs of a tile's side; 0: the matrix
}

// weightsOf returns the memory of p's prepared weights; fresh reports whether the caller must
// prepare them now. If parameters may change, all operations share one memory and prepare their
// weights in every pass.
func (t *Tape) weightsOf(p *Param, tile int) (w *weights, fresh bool) {
	if t.packedWeights == nil {
		return &t.packed.weights, true
	}
	key := weightsKey{p, tile}
	w = t.packedWeights[key]
	if w == nil {
		w = new(weights)
		t.packedWeights[key] = w
	}
	fresh, w.made = !w.made && !t.pool.dry, true
	return w, fresh
}

// matrixOf is p as the packed right-hand matrix op(B)[kk, n] of a forward product.
func (t *Tape) matrixOf(p *Param, trans bool, kk, n, ldb int) *simd.PackedB {
	w, fresh := t.weightsOf(p, 0)
	if fresh {
		t.pack(&w.packed, trans, kk, n, p.Data, ldb)
	}
	return &w.packed
}
