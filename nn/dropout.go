package nn

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/simd"
)

// SetSeed sets the seed of random decisions in operations recorded afterwards, such as Dropout's:
// equal seeds give equal decisions. A training loop calls it before every step with a seed that
// depends on the step and the rank. Reset retains the seed.
func (t *Tape) SetSeed(seed uint64) { t.seed = seed }

// randomKey returns the key of the random numbers of the operation recorded last: a hash
// (SplitMix64) of the tape's seed and the operation's index.
func (t *Tape) randomKey() simd.DropoutKey {
	z := mix64(mix64(t.seed+0x9e3779b97f4a7c15) + uint64(t.n)*0x9e3779b97f4a7c15)
	return simd.DropoutKey{uint32(z), uint32(z >> 32)}
}

// mix64 is the output function of SplitMix64.
func mix64(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

type dropoutOp struct {
	unary // the result is a view of x in an evaluation

	values    []float32 // the memory of y in training
	key       simd.DropoutKey
	threshold uint32
	scale     float32
	dst, src  []float32 // slices of the pass in progress
	job       passJob[dropoutOp]
}

// Dropout sets each value to zero with probability p, and multiplies the remaining values by
// 1/(1-p), so that the expected value does not change. For p = 0 it returns x, and in an evaluation
// a view of x. The dropped values depend only on SetSeed, the operation's index in the recording
// and the value's index; Backward recomputes them. It panics unless 0 <= p < 1.
func (t *Tape) Dropout(x *Tensor, p float64) *Tensor {
	if !(p >= 0 && p < 1) {
		panic(fmt.Errorf("nn: dropout: probability %s: want at least 0 and less than 1", quantity.Exact(p)))
	}
	if p == 0 {
		return x
	}
	o := record[dropoutOp](t) // recorded in an evaluation too, so that later operations keep their index and memory
	o.x = x
	o.y.Shape = append(o.y.Shape[:0], x.Shape...)
	t.note(o)
	if t.eval {
		o.y.Data = x.Data
		return &o.y
	}
	o.values = sized(o.values, len(x.Data))
	o.y.Data = o.values
	o.key, o.threshold, o.scale = t.randomKey(), uint32(math.Min(p*(1<<32), math.MaxUint32)), float32(1/(1-p))
	o.run(t, o.y.Data, x.Data)
	return &o.y
}

// dropoutPart is the number of values of a part.
const dropoutPart = 16 << 10

func (o *dropoutOp) run(t *Tape, dst, src []float32) {
	o.dst, o.src = dst, src
	o.job.each(t, o, func(o *dropoutOp, w *worker, _, lo, hi int) {
		w.k.Dropout(o.dst[lo:hi], o.src[lo:hi], o.key, uint32(lo), o.threshold, o.scale)
	}, len(dst), dropoutPart)
}

func (o *dropoutOp) backward(t *Tape) {
	dx := t.into(o.x)
	o.run(t, dx, o.y.grad)
	t.merge(o.x, dx)
}
