package nn

import "github.com/ringo-ml/ringo/internal/simd"

// packJob packs the right-hand matrix of products, op(B)[kk, n], panel by panel.
type packJob struct {
	dst    *simd.PackedB
	data   []float32 // dst's
	width  int
	trans  bool
	kk, n  int
	b      []float32
	ldb    int
	panels int
	cuts   int
}

// packValues is the number of values that repays a part of packing: about 5 us, and waking another
// thread takes 1.
const packValues = 4 << 10

// pack is Kernels.PackB on all threads.
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
	j.data, j.width = t.k.Panels(dst, kk, n)
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
	w.k.PanelsIn(into, j.data[lo*j.kk:], j.kk, hi-lo)
	w.k.PackB(into, j.trans, j.kk, hi-lo, b, j.ldb)
}
