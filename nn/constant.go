package nn

import "github.com/ringo-ml/ringo/internal/simd"

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

// weightsOf returns the memory of p's prepared weights; fresh reports whether to prepare them now.
// If parameters may change, all operations share the memory and prepare weights each time.
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
