package simd

import "github.com/ringo-ml/ringo/internal/hugepage"

// Match makes the buffers at least as large as o's, so that equal work allocates no memory.
func (s *Scratch) Match(o *Scratch) {
	match(&s.a, o.a)
	match(&s.b, o.b)
	match(&s.r, o.r)
}

func match(buf *[]float32, o []float32) {
	if cap(*buf) < cap(o) {
		*buf = make([]float32, cap(o))
		hugepage.Advise(*buf)
	}
}
