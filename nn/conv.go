package nn

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/simd"
)

// Conv says how a convolution moves over its input and what follows in the
// same pass. The zero value is stride 1, no padding, no pooling and no
// activation.
type Conv struct {
	Stride     int  // 0 means 1
	Pad        int  // zeros around the input
	MaxPool2   bool // Tape.MaxPool2 of the result; what it drops is not stored
	Activation Activation
}

type convOp struct {
	x   *Tensor
	l   Layer
	cfg Conv
	y   Tensor

	patches simd.Patches
	out     int     // output channels
	places  int     // window positions
	from    []uint8 // of max-pooling: which value of its window each output was
	pass    convPass
	parts   int
	dx      []float32
	sums    []float32 // per part: dW, then db
}

// convPass computes what a part is asked for, of samples lo to hi-1.
type convPass func(o *convOp, w *worker, part, lo, hi int)

func (o *convOp) operands() ([4]*Tensor, [4]*Param) {
	return [4]*Tensor{o.x}, [4]*Param{o.l.W, o.l.B}
}
func (o *convOp) result() *Tensor { return &o.y }

// Conv2D is the cross-correlation of x, [n, in, h, w], with W,
// [out, in, kh, kw], plus the bias b, [out] or nil: the result is
// [n, out, (h+2·pad-kh)/stride+1, (w+2·pad-kw)/stride+1], or half of these
// heights and widths, rounded down, after max-pooling.
//
// Each sample is a product of W and the matrix of patches, which is never
// stored (implicit GEMM): 2·out·in·kh·kw operations per output place, as many
// for the gradient of W, and as many for that of x, which is left out when
// nothing upstream has parameters.
func (t *Tape) Conv2D(x *Tensor, l Layer, cfg Conv) *Tensor {
	p := convPatches(x, l, cfg)
	o := record[convOp](t)
	o.x, o.l, o.cfg, o.patches = x, l, cfg, p
	o.out, o.places = l.W.Shape[0], p.Cols()
	h, w := p.OutHeight(), p.OutWidth()
	if cfg.MaxPool2 {
		h, w = h/2, w/2
	}
	y := t.begin(o, x.Shape[0], o.out, h, w)
	if cfg.MaxPool2 {
		o.from = sizedBytes(o.from, y.Len())
	}
	o.run(t, convForward)
	return y
}

func convPatches(x *Tensor, l Layer, cfg Conv) simd.Patches {
	l.want(len(l.W.Shape) == 4, "convolution", "weights [out, in, kh, kw]", l.W.Shape...)
	s := l.W.Shape
	l.want(l.B == nil || len(l.B.Data) == s[0], "convolution", "one bias per output channel", s[0])
	if len(x.Shape) != 4 || x.Shape[0] == 0 || x.Shape[1] != s[1] {
		panic(&ShapeError{Op: "convolution " + l.W.Name, Want: fmt.Sprintf("an input [n, %d, h, w], n > 0", s[1]), Got: x.Shape})
	}
	p := simd.Patches{
		Channels: s[1], Height: x.Shape[2], Width: x.Shape[3],
		KernelHeight: s[2], KernelWidth: s[3], Stride: cfg.Stride, Pad: cfg.Pad,
	}
	if err := p.Validate(); err != nil {
		panic(&ShapeError{Op: "convolution " + l.W.Name, Want: "a window that fits the image: " + err.Error(), Got: x.Shape})
	}
	return p
}

// convParts is how many parts a batch is cut in. Each part sums a weight
// gradient of its own, and these are added in order, so that the result does
// not depend on how many threads share the parts.
const convParts = 8

func (o *convOp) run(t *Tape, pass convPass) {
	o.pass, o.parts = pass, min(convParts, o.x.Shape[0])
	t.pool.run(o, o.parts)
}

func (o *convOp) part(w *worker, i int) {
	n := o.x.Shape[0]
	o.pass(o, w, i, n*i/o.parts, n*(i+1)/o.parts)
}

// sample is sample s of data, which holds one for each sample of the batch.
func sample[T any](o *convOp, data []T, s int) []T {
	n := len(data) / o.x.Shape[0]
	return data[s*n : (s+1)*n]
}

func convForward(o *convOp, w *worker, _, lo, hi int) {
	relu, h, wd := o.cfg.Activation == ReLU, o.patches.OutHeight(), o.patches.OutWidth()
	after := simd.Epilogue{ReLU: relu && !o.cfg.MaxPool2}
	if o.l.B != nil {
		after.RowBias = o.l.B.Data
	}
	for s := lo; s < hi; s++ {
		y := sample(o, o.y.Data, s)
		if o.cfg.MaxPool2 {
			y = w.floats(0, o.out*o.places)
		}
		w.k.GemmPatches(&w.gemm, o.out, o.l.W.Data, o.patches.Rows(), o.patches, sample(o, o.x.Data, s), false, y, o.places, after)
		if o.cfg.MaxPool2 {
			w.k.MaxPool2(sample(o, o.y.Data, s), sample(o, o.from, s), y, o.out, h, wd, relu)
		}
	}
}

// outputGrad is the gradient of sample s before activation and pooling.
func (o *convOp) outputGrad(w *worker, s int) []float32 {
	dy := sample(o, o.y.grad, s)
	if o.cfg.MaxPool2 {
		wide := w.floats(0, o.out*o.places)
		w.k.MaxPool2Grad(wide, dy, sample(o, o.from, s), o.out, o.patches.OutHeight(), o.patches.OutWidth())
		return wide
	}
	if o.cfg.Activation == ReLU {
		w.k.ReLUGrad(dy, dy, sample(o, o.y.Data, s))
	}
	return dy
}

func (o *convOp) backward(t *Tape) {
	o.sums = sized(o.sums, convParts*o.sumLen())
	if o.x.needs {
		o.dx = t.into(o.x)
	}
	o.run(t, convBackward)
	if o.x.needs {
		t.merge(o.x, o.dx)
	}
	for i := range o.parts {
		dw, db := o.partSums(i)
		addPart(t, o.l.W, dw, i)
		if o.l.B != nil {
			addPart(t, o.l.B, db, i)
		}
	}
}

// addPart adds part i to p's gradient; the first contribution overwrites.
func addPart(t *Tape, p *Param, part []float32, i int) {
	if i == 0 && !p.touched {
		copy(p.Grad, part)
		return
	}
	t.k.Add(p.Grad, part)
}

func (o *convOp) sumLen() int { return len(o.l.W.Data) + o.out }

// partSums returns the gradients of W and b that part i sums.
func (o *convOp) partSums(i int) (dw, db []float32) {
	all := o.sums[i*o.sumLen() : (i+1)*o.sumLen()]
	return all[:len(o.l.W.Data)], all[len(o.l.W.Data):]
}

// convBackward sums the part's dW and db and computes dx. dy is summed over
// samples first, in whole vectors, and over places last.
func convBackward(o *convOp, w *worker, part, lo, hi int) {
	dw, db := o.partSums(part)
	total := w.floats(1, o.out*o.places)
	clear(total)
	for s := lo; s < hi; s++ {
		dy := o.outputGrad(w, s)
		w.k.GemmPatchesT(&w.gemm, o.out, dy, o.places, o.patches, sample(o, o.x.Data, s), s > lo, dw, o.patches.Rows())
		w.k.Add(total, dy)
		if o.x.needs {
			o.inputGrad(w, s, dy)
		}
	}
	for c := range db {
		db[c] = sum(total[c*o.places : (c+1)*o.places])
	}
}

// sum adds x in eight interleaved chains.
func sum(x []float32) float32 {
	var s [8]float32
	for ; len(x) >= 8; x = x[8:] {
		for i, v := range x[:8] {
			s[i] += v
		}
	}
	for i, v := range x {
		s[i] += v
	}
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

// inputGrad computes dx of one sample: Wᵀ dy is the gradient of the patches,
// and each value of x gets the sum over the patches it is part of.
func (o *convOp) inputGrad(w *worker, s int, dy []float32) {
	rows := o.patches.Rows()
	cols := w.floats(2, rows*o.places)
	w.k.Gemm(&w.gemm, true, false, rows, o.places, o.out, o.l.W.Data, rows, dy, o.places, false, cols, o.places)
	dx := sample(o, o.dx, s)
	clear(dx)
	w.k.AddPatches(&w.gemm, dx, o.patches, cols, o.places)
}
