package nn

import (
	"fmt"
	"math"
)

type attentionOp struct {
	unary
	heads, steps int

	// stats has, by sample, head and step, the largest score and the reciprocal of the sum of
	// exponentials. Backward recomputes the probabilities from these, with the same bits.
	stats []float32
	dx    []float32

	job passJob[attentionOp]
}

// Attention is causal self-attention: qkv is [n*steps, 3*width], the queries, keys and values of n
// sequences of steps, sequence by sequence, each of the three in heads pieces of width/heads
// values. The result of each step is, head by head,
//
//	Σ p_j value_j,  p = softmax of query·key_j/sqrt(width/heads) over steps j up to its own
//
// and the whole is [n*steps, width]. Scores are computed for attentionRows queries at a time, in a
// buffer that stays in the cache. Backward recomputes the scores (Dao et al., FlashAttention,
// 2022), which costs a fifth matrix product instead of n*heads*steps² values in memory. Cost:
// 2·n·steps²·width operations forward, as half of all pairs count, and 2.5 times as many backward.
func (t *Tape) Attention(qkv *Tensor, heads, steps int) *Tensor {
	if len(qkv.Shape) != 2 || heads < 1 || steps < 1 || qkv.Shape[0] == 0 || qkv.Shape[0]%steps != 0 || qkv.Shape[1] == 0 || qkv.Shape[1]%(3*heads) != 0 {
		panic(&ShapeError{Op: "attention", Required: fmt.Sprintf("queries, keys and values [n*%d, 3*width], n > 0, width a multiple of %d heads", steps, heads), Got: qkv.Shape})
	}
	rows, width := qkv.Shape[0], qkv.Shape[1]/3
	o := record[attentionOp](t)
	o.x, o.heads, o.steps = qkv, heads, steps
	y := t.begin(o, rows, width)
	o.stats = sized(o.stats, 2*rows*heads)
	o.job.each(t, o, (*attentionOp).forwardHead, rows/steps*heads, 1)
	return y
}

// attentionRows is the number of queries with scores in memory at a time.
const attentionRows = 64

// attentionHead is one head of one sequence. Matrices are [steps, dim]; rows of q, k and v are
// 3*width floats apart, rows of y width.
type attentionHead struct {
	steps, dim, width int
	q, k, v, y        []float32
	stats             []float32
	scale             float32
	ld                int // floats between rows of scores: whole vectors
}

// head returns head i%heads of sample i/heads.
func (o *attentionOp) head(i int) attentionHead {
	sample, head, width := i/o.heads, i%o.heads, o.y.Shape[1]
	h := attentionHead{steps: o.steps, dim: width / o.heads, width: width}
	at := sample * o.steps
	x := o.x.Data[at*3*width+head*h.dim:]
	h.q, h.k, h.v = x, x[width:], x[2*width:]
	h.y = o.y.Data[at*width+head*h.dim:]
	h.stats = o.stats[2*(at*o.heads+head*o.steps):][:2*o.steps]
	h.scale = float32(1 / math.Sqrt(float64(h.dim)))
	h.ld = (o.steps + 15) &^ 15
	return h
}

// scores computes the scaled scores of queries lo to hi-1 with the steps before hi. Scores after a
// query's step are -Inf, up to whole vectors.
func (h *attentionHead) scores(w *worker, s []float32, lo, hi int) {
	w.k.Gemm(&w.gemm, false, true, hi-lo, hi, h.dim, h.q[lo*3*h.width:], 3*h.width, h.k, 3*h.width, false, s, h.ld)
	for i := lo; i < hi; i++ {
		row := h.row(s, lo, i)
		w.k.Scale(row[:i+1], h.scale)
		for j := i + 1; j < len(row); j++ {
			row[j] = minusInf
		}
	}
}

var minusInf = float32(math.Inf(-1))

// row returns the scores of query i, up to whole vectors.
func (h *attentionHead) row(s []float32, lo, i int) []float32 {
	return s[(i-lo)*h.ld:][:(i+16)&^15]
}

// future sets the scores of query i with later steps, up to hi, to -Inf.
func (h *attentionHead) future(s []float32, lo, hi, i int) {
	clear(s[(i-lo)*h.ld:][i+1 : hi])
}

func (o *attentionOp) forwardHead(w *worker, i, _, _ int) {
	h := o.head(i)
	s := w.floats(0, attentionRows*h.ld)
	for lo := 0; lo < h.steps; lo += attentionRows {
		hi := min(lo+attentionRows, h.steps)
		h.scores(w, s, lo, hi)
		for i := lo; i < hi; i++ {
			row := h.row(s, lo, i)
			most, sum := w.k.Softmax(row, row)
			h.stats[2*i], h.stats[2*i+1] = most, float32(1/sum)
			h.future(s, lo, hi, i)
		}
		w.k.Gemm(&w.gemm, false, false, hi-lo, h.dim, hi, s, h.ld, h.v, 3*h.width, false, h.y[lo*h.width:], h.width)
	}
}

func (o *attentionOp) backward(t *Tape) {
	o.dx = t.into(o.x)
	o.job.each(t, o, (*attentionOp).backwardHead, o.x.Shape[0]/o.steps*o.heads, 1)
	t.merge(o.x, o.dx)
}

// backwardHead goes from the last queries, which attend to all keys, to the first, so that the
// first product writes every row of the keys' and values' gradients.
func (o *attentionOp) backwardHead(w *worker, part, _, _ int) {
	h := o.head(part)
	ld, width := 3*h.width, h.width
	at, column := part/o.heads*o.steps, part%o.heads*h.dim
	dq := o.dx[at*ld+column:]
	dk, dv := dq[width:], dq[2*width:]
	dy := o.y.grad[at*width+column:]
	p, dp := w.floats(0, attentionRows*h.ld), w.floats(1, attentionRows*h.ld)
	for lo := (h.steps - 1) / attentionRows * attentionRows; lo >= 0; lo -= attentionRows {
		hi := min(lo+attentionRows, h.steps)
		later := hi < h.steps // some queries are done
		h.scores(w, p, lo, hi)
		w.k.Gemm(&w.gemm, false, true, hi-lo, hi, h.dim, dy[lo*width:], width, h.v, ld, false, dp, h.ld)
		for i := lo; i < hi; i++ {
			row := h.row(p, lo, i)
			w.k.ExpScale(row, row, h.stats[2*i], h.stats[2*i+1])
			d := dot(dy[i*width:][:h.dim], h.y[i*width:][:h.dim])
			w.k.SoftmaxGrad(h.row(dp, lo, i), row, d, h.scale)
			h.future(p, lo, hi, i)
			h.future(dp, lo, hi, i)
		}
		w.k.Gemm(&w.gemm, true, false, hi, h.dim, hi-lo, p, h.ld, dy[lo*width:], width, later, dv, ld)
		w.k.Gemm(&w.gemm, true, false, hi, h.dim, hi-lo, dp, h.ld, h.q[lo*ld:], ld, later, dk, ld)
		w.k.Gemm(&w.gemm, false, false, hi-lo, h.dim, hi, dp, h.ld, h.k, ld, false, dq[lo*ld:], ld)
	}
}

// dot is the sum of a[i]*b[i] in four lanes, to hide the addition's latency.
func dot(a, b []float32) float32 {
	var s0, s1, s2, s3 float32
	for len(a) >= 4 && len(b) >= 4 {
		s0 += float32(a[0] * b[0])
		s1 += float32(a[1] * b[1])
		s2 += float32(a[2] * b[2])
		s3 += float32(a[3] * b[3])
		a, b = a[4:], b[4:]
	}
	for i, v := range a {
		s0 += float32(v * b[i])
	}
	return (s0 + s1) + (s2 + s3)
}
