package nn

import "github.com/ringo-ml/ringo/internal/simd"

// maxAxes is the maximum number of axes for operations with broadcasting.
const maxAxes = 8

// nest is nested loops over a tensor, the outermost first, with the strides of one or two other
// tensors: 0 along axes that are broadcast or summed. Axes of length 1 are omitted and adjacent
// axes joined if possible, so that the innermost loop is long.
type nest struct {
	n    int // loops, at least 1
	dims [maxAxes]int
	full strides // the tensor's strides
	a, b strides
}

type strides [maxAxes]int

// alongside returns the strides of a tensor of the given shape along rank axes, aligned at the
// last, as in NumPy.
func alongside(shape []int, rank int) (s strides) {
	step := 1
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] != 1 {
			s[rank-len(shape)+i] = step
		}
		step *= shape[i]
	}
	return s
}

// makeNest joins the axes of shape; a and b are the strides of the other tensors.
func makeNest(shape []int, a, b strides) (m nest) {
	full := alongside(shape, len(shape))
	for i, d := range shape {
		if d == 1 {
			continue
		}
		if m.n > 0 && m.joins(m.n-1, d, full[i], a[i], b[i]) {
			m.dims[m.n-1] *= d
		} else {
			m.dims[m.n] = d
			m.n++
		}
		m.full[m.n-1], m.a[m.n-1], m.b[m.n-1] = full[i], a[i], b[i]
	}
	if m.n == 0 { // a single value
		m.n, m.dims[0], m.full[0] = 1, 1, 1
	}
	return m
}

// joins reports whether loop i and an inner loop of d values with these strides are one loop.
func (m *nest) joins(i, d, full, a, b int) bool {
	return m.full[i] == full*d && m.a[i] == a*d && m.b[i] == b*d
}

func (m *nest) inner() int { return m.dims[m.n-1] }

func (m *nest) size() int {
	size := 1
	for _, d := range m.dims[:m.n] {
		size *= d
	}
	return size
}

// offset returns the position in an operand of iteration i of all loops but the innermost.
func (m *nest) offset(i int, s *strides) int {
	at := 0
	for l := m.n - 2; l >= 0; l-- {
		at += i % m.dims[l] * s[l]
		i /= m.dims[l]
	}
	return at
}

// stretch computes a run of adjacent values of dst. sa and sb are the strides of a and b, 0 or 1.
type stretch func(k *simd.Kernels, dst, a, b []float32, sa, sb int)

// stridedJob is an operation with broadcasting: dst = f(a, b) over a nest. A part is a run of dst.
type stridedJob struct {
	m         *nest
	sa, sb    *strides
	f         stretch
	dst, a, b []float32
}

// spread computes f over all runs of m. b may be nil if f does not read it.
func (t *Tape) spread(f stretch, m *nest, dst, a []float32, sa *strides, b []float32, sb *strides) {
	t.strided = stridedJob{m: m, sa: sa, sb: sb, f: f, dst: dst, a: a, b: b}
	t.pool.run(&t.strided, (len(dst)+valuesPart-1)/valuesPart)
	t.strided = stridedJob{}
}

func (j *stridedJob) part(w *worker, i int) {
	inner, last := j.m.inner(), j.m.n-1
	sa, sb := j.sa[last], j.sb[last]
	for at, hi := i*valuesPart, min((i+1)*valuesPart, len(j.dst)); at < hi; {
		row, col := at/inner, at%inner
		n := min(inner-col, hi-at)
		a := j.a[j.m.offset(row, j.sa)+col*sa:]
		b := a
		if j.b != nil {
			b = j.b[j.m.offset(row, j.sb)+col*sb:]
		}
		j.f(w.k, j.dst[at:at+n], a, b, sa, sb)
		at += n
	}
}

// foldJob computes scale times a sum over the axes of a nest along which dst has stride 0.
type foldJob struct {
	m        *nest
	s        *strides
	dst, src []float32
	scale    float32

	outer, reduced nest // loops that move dst; summed loops without the last
	run            int  // length of the last summed loop
	step           int  // stride of the last summed loop in src
}

// foldColumns is the minimum number of columns of a part.
const foldColumns = 256

// fold computes dst = scale·Σ src, a tensor of m, over the axes with strides s of 0. Sums follow
// the order of src if dst moves along the last axis; otherwise runs are summed by Kernels.Sum.
func (t *Tape) fold(m *nest, s *strides, dst, src []float32, scale float32) {
	if len(src) == 0 {
		clear(dst)
		return
	}
	j := &t.folds
	*j = foldJob{m: m, s: s, dst: dst, src: src, scale: scale, run: 1}
	j.split()
	if s[m.n-1] == 0 {
		t.pool.run(j, (len(dst)+j.outputs()-1)/j.outputs())
	} else {
		t.pool.run(j, len(dst)/m.inner()*j.blocks())
	}
	*j = foldJob{}
}

// split divides the loops into the fields outer and reduced. Their strides a are those of src.
func (j *foldJob) split() {
	for l := range j.m.n {
		to := &j.reduced
		if j.s[l] != 0 {
			to = &j.outer
		}
		to.dims[to.n], to.a[to.n] = j.m.dims[l], j.m.full[l]
		to.n++
	}
	if j.reduced.n > 0 {
		last := j.reduced.n - 1
		j.run, j.step, j.reduced.dims[last] = j.reduced.dims[last], j.reduced.a[last], 1
	}
}

// outputs returns the number of sums that one part computes, if sums are of adjacent values.
func (j *foldJob) outputs() int { return max(1, valuesPart/(j.run*j.reduced.size())) }

// blocks is the number of parts of the last loop, if dst moves along it.
func (j *foldJob) blocks() int { return (j.m.inner() + foldColumns - 1) / foldColumns }

func (j *foldJob) part(w *worker, i int) {
	if j.s[j.m.n-1] == 0 {
		j.sums(w, i)
	} else {
		j.columns(w, i)
	}
}

// sums computes sums of runs.
func (j *foldJob) sums(w *worker, i int) {
	n := j.outputs()
	for o := i * n; o < min((i+1)*n, len(j.dst)); o++ {
		from, sum := j.outer.at(o), 0.0
		for g := range j.reduced.size() {
			sum += w.k.Sum(j.src[from+j.reduced.at(g):][:j.run])
		}
		j.dst[o] = float32(sum * float64(j.scale))
	}
}

// columns computes a block of columns: rows are added up.
func (j *foldJob) columns(w *worker, i int) {
	inner, blocks := j.m.inner(), j.blocks()
	row, block := i/blocks, i%blocks
	lo, hi := inner*block/blocks, inner*(block+1)/blocks
	dst, from := j.dst[row*inner+lo:row*inner+hi], j.outer.at(row*inner)+lo
	clear(dst)
	for g := range j.reduced.size() {
		w.k.SumRows(dst, j.src[from+j.reduced.at(g):], j.step, j.run)
	}
	if j.scale != 1 {
		w.k.Scale(dst, j.scale)
	}
}

// at returns the position in dst at which iteration i of all loops begins.
func (m *nest) at(i int) (at int) {
	for l := m.n - 1; l >= 0; l-- {
		at += i % m.dims[l] * m.a[l]
		i /= m.dims[l]
	}
	return at
}
