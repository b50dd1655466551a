package simd

// Points is a run of equal products, C[p] = op(A[p]) * B[p] for p in [0, Count): matrices of M x K
// by K x N, with row distances lda, ldb and ldc, and point distances aStep, bStep and cStep.
// Winograd's convolutions consist of dozens of products so small that separate set-ups would take
// as long.
type Points struct {
	Count, M, N, K int
	TransA         bool // A[p] is stored as [K,M]
	A              []float32
	LDA, AStep     int
	Packed         []PackedB // B by point, or nil
	B              []float32 // used if Packed is nil
	LDB, BStep     int
	Accumulate     bool // add to C
	C              []float32
	LDC, CStep     int
}

// GemmPoints computes p with the bits of [Kernels.Gemm] or [Kernels.GemmWith].
func (k *Kernels) GemmPoints(s *Scratch, p *Points) {
	if p.Count == 0 || p.M == 0 || p.N == 0 {
		return
	}
	g := &k.gemm
	if !g.chained || !g.masked || g.pair != nil || p.K == 0 || p.K > kcMax || p.N > 4*g.nr || conflicts(p.LDA) {
		k.pointByPoint(s, p)
		return
	}
	p.check(g)
	t := &s.tile
	t.kc, t.accumulate, t.ldc = p.K, flag(p.Accumulate), p.LDC
	t.ars, t.acs = p.LDA, 1
	if p.TransA {
		t.ars, t.acs = 1, p.LDA
	}
	run := pointRun{Points: p, k: g, t: t}
	if p.Packed == nil {
		run.panels = grow(&s.b, (p.N+g.nr-1)/g.nr*g.nr*p.K)
	}
	for i := range p.Count {
		run.point(i)
	}
	*t = tile{}
}

func (k *Kernels) pointByPoint(s *Scratch, p *Points) {
	for i := range p.Count {
		a, c := p.A[i*p.AStep:], p.C[i*p.CStep:]
		if p.Packed != nil {
			k.GemmWith(s, p.TransA, p.M, p.N, p.K, a, p.LDA, &p.Packed[i], p.Accumulate, c, p.LDC, Epilogue{})
		} else {
			k.Gemm(s, p.TransA, false, p.M, p.N, p.K, a, p.LDA, p.B[i*p.BStep:], p.LDB, p.Accumulate, c, p.LDC)
		}
	}
}

func (p *Points) check(g *gemmLevel) {
	last := p.Count - 1
	rows, cols := p.M, p.K
	if p.TransA {
		rows, cols = p.K, p.M
	}
	checkMatrix("A", p.A[last*p.AStep:], rows, cols, p.LDA)
	checkMatrix("C", p.C[last*p.CStep:], p.M, p.N, p.LDC)
	if p.Packed == nil {
		checkMatrix("B", p.B[last*p.BStep:], p.K, p.N, p.LDB)
		return
	}
	for i := range p.Count {
		p.Packed[i].check(g, p.K, p.N)
	}
}

// pointRun is Points in progress.
type pointRun struct {
	*Points
	k      *gemmLevel
	t      *tile
	panels []float32 // panels of B, packed by the first tile of a point
}

// point computes product i, with tiles of equal height in one call.
func (r *pointRun) point(i int) {
	tiles := (r.M + r.k.mr - 1) / r.k.mr
	larger, rows := r.M%tiles, r.M/tiles
	row, packing := 0, r.Packed == nil
	if packing {
		n := rows
		if larger > 0 {
			n, larger = n+1, larger-1
		}
		r.tiles(i, 0, n, 1, true)
		row, tiles = n, tiles-1
	}
	r.tiles(i, row, rows+1, larger, false)
	r.tiles(i, row+larger*(rows+1), rows, tiles-larger, false)
}

// tiles computes count tiles from the given row on.
func (r *pointRun) tiles(i, row, rows, count int, packing bool) {
	t, nr := r.t, r.k.nr
	full, tail := r.N/nr, r.N%nr
	most := max(1, callSteps/((r.K+8)*r.k.mr*max(1, full)))
	t.rows, t.aStep = rows, rows*t.ars
	for ; count > 0; count, row = count-t.tiles, row+t.tiles*rows {
		t.tiles = min(most, count)
		if full > 0 {
			t.panels, t.columns, t.mask = full, nr, 1<<nr-1
			r.at(i, row, 0, packing)
			r.k.wide[rows](t)
		}
		if tail > 0 {
			t.panels, t.columns, t.mask = 1, tail, 1<<tail-1
			r.at(i, row, full, packing)
			kernels := r.k.wide
			if r.k.narrow != nil && tail <= nr/2 {
				kernels = r.k.narrow
			}
			kernels[rows](t)
		}
	}
}

// at points the tile at a row and a panel of point i.
func (r *pointRun) at(i, row, panel int, packing bool) {
	t, nr := r.t, r.k.nr
	t.a = r.A[i*r.AStep+row*t.ars:]
	t.c = r.C[i*r.CStep+row*r.LDC+panel*nr:]
	t.brs, t.bps = nr, r.K*nr
	t.pack, t.packStep, t.packPanelStep = nil, 0, 0
	if r.Packed != nil {
		t.b = r.Packed[i].data[panel*t.bps:]
		return
	}
	t.b = r.panels[panel*t.bps:]
	if packing {
		t.pack, t.packStep, t.packPanelStep = &t.b[0], nr, t.bps
		t.b, t.brs, t.bps = r.B[i*r.BStep+panel*nr:], r.LDB, nr
	}
}
