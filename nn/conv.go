package nn

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/simd"
)

// Conv configures a convolution and the operations in the same pass. The zero value has stride 1,
// no padding, no pooling and no activation.
type Conv struct {
	// Stride is the step of the kernel in pixels. 0 means 1.
	Stride int
	// Pad is the number of zeros around the input, on each side.
	Pad int
	// MaxPool2 reduces each 2x2 window of the result to its maximum; dropped values are not stored.
	MaxPool2 bool
	// Activation is Identity or ReLU.
	Activation Activation
}

type convOp struct {
	output
	x   *Tensor
	l   Layer
	cfg Conv

	win    simd.Windows
	out    int // output channels
	algo   convAlgorithm
	pool   simd.PoolPlan // max-pooling
	from   []uint8       // max-pooling: index in its window of each output
	dx     []float32     // nil: not needed
	grid   tileGrid      // Winograd, forward
	wino   winogradPass
	packed *convPacked
	w      *weights // weights of the pass in progress
	job    passJob[convOp]
}

// convAlgorithm computes a convolution and its gradients.
type convAlgorithm interface {
	// forward computes the result, bias and activation included.
	forward(o *convOp, t *Tape)
	// backward adds to the gradients of the weights and the bias, given the result's, and computes
	// the input's if needed.
	backward(o *convOp, t *Tape)
}

// convPacked is the memory for packed weights that a tape's convolutions share sequentially.
type convPacked struct {
	weights weights
	sums    []float32   // gradients of W, then of b, by part
	v, d    sharedPlane // the points of all tiles of the input and of the output's gradient
}

func (o *convOp) operands() ([4]*Tensor, [4]*Param) {
	return [4]*Tensor{o.x}, [4]*Param{o.l.W, o.l.B}
}

// Conv2D is the cross-correlation of x, [n, h, w, in], with W, [kh, kw, in, out], plus the bias b,
// [out] or nil. The result is [n, (h+2·pad-kh)/stride+1, (w+2·pad-kw)/stride+1, out], or half of
// these heights and widths, rounded down, after max-pooling.
//
// Windows of 3x3 with stride 1 over at least 16 channels use Winograd's algorithm, with a quarter
// of the multiplications. All other convolutions are a product of W with the matrix of windows,
// which is never stored (implicit GEMM): 2·kh·kw·in·out operations per place, as many for the
// gradient of W, and as many for the gradient of x, which is skipped if no upstream operation has
// parameters.
func (t *Tape) Conv2D(x *Tensor, l Layer, cfg Conv) *Tensor {
	win := convWindows(x, l, cfg)
	o := record[convOp](t)
	o.x, o.l, o.cfg, o.win, o.out = x, l, cfg, win, l.W.Shape[3]
	h, w := win.OutHeight(), win.OutWidth()
	if cfg.MaxPool2 {
		l.want(h > 1 && w > 1, "convolution", "a result of at least 2x2 before max-pooling", h, w)
		h, w = h/2, w/2
	}
	y := t.begin(o, x.Shape[0], h, w, o.out)
	if cfg.MaxPool2 {
		o.from = bytesview.Sized(o.from, y.Len())
		o.pool.Set(simd.Window{Height: win.OutHeight(), Width: win.OutWidth(), Channels: o.out, Size: 2, Stride: 2})
	}
	o.algo = implicitGEMM{}
	if winogradPays(win, o.out, cfg) {
		o.grid = newTileGrid(t.k.Single(), x.Shape[0], h, w)
		if !t.eval || !o.grid.few(x.Shape[0]*h*w, t.packedWeights != nil) {
			o.algo = winograd{}
		}
	}
	o.packed = &t.packed
	if !t.pool.dry {
		o.algo.forward(o, t)
	}
	return y
}

func convWindows(x *Tensor, l Layer, cfg Conv) simd.Windows {
	l.want(len(l.W.Shape) == 4, "convolution", "weights [kh, kw, in, out]", l.W.Shape...)
	s := l.W.Shape
	l.want(l.B == nil || len(l.B.Data) == s[3], "convolution", "one bias per output channel", s[3])
	l.want(cfg.Activation == Identity || cfg.Activation == ReLU, "convolution", "no activation or ReLU", int(cfg.Activation))
	if len(x.Shape) != 4 || x.Shape[0] == 0 || x.Shape[3] != s[2] {
		panic(&ShapeError{Op: "convolution " + l.W.Name, Required: fmt.Sprintf("an input [n, h, w, %d], n > 0", s[2]), Got: x.Shape})
	}
	win := simd.Windows{
		Height: x.Shape[1], Width: x.Shape[2], Channels: s[2],
		KernelHeight: s[0], KernelWidth: s[1], Stride: cfg.Stride, Pad: cfg.Pad,
	}
	if err := win.Validate(); err != nil {
		panic(&ShapeError{Op: "convolution " + l.W.Name, Required: "a window that fits the image: " + err.Error(), Got: x.Shape})
	}
	return win
}

// rows is the number of windows of the whole batch.
func (o *convOp) rows() int { return o.x.Shape[0] * o.win.Rows() }

// bias returns the bias's values, or nil.
func (o *convOp) bias() []float32 {
	if o.l.B == nil {
		return nil
	}
	return o.l.B.Data
}

func (o *convOp) backward(t *Tape) {
	if o.cfg.Activation == ReLU {
		t.elementwise(reluGrad, o.y.grad, o.y.grad, o.y.Data)
	}
	o.dx = nil
	if o.x.needs {
		o.dx = t.into(o.x)
	}
	o.algo.backward(o, t)
	if o.x.needs {
		t.merge(o.x, o.dx)
	}
}

// convParts is the number of parts of a batch that sum a gradient of small weights. They are added
// in order, so that the result does not depend on the number of threads.
const convParts = 8

// sumLen is the size of one part's sums.
func (o *convOp) sumLen() int { return len(o.l.W.Data) + o.out }

// partSums returns the gradients of W and b of part i.
func (o *convOp) partSums(i int) (dw, db []float32) {
	all := o.packed.sums[i*o.sumLen() : (i+1)*o.sumLen()]
	return all[:len(o.l.W.Data)], all[len(o.l.W.Data):]
}

// addParts adds the parts' sums for p, which begin at index at of each part's.
func (o *convOp) addParts(t *Tape, p *Param, at, parts int) {
	cuts := t.pool.cut(len(p.Data)/partValues, 1) // few values do not repay waking threads
	t.parts = partsJob{p: p, sums: o.packed.sums[at:], step: o.sumLen(), n: parts, cuts: cuts}
	t.pool.run(&t.parts, cuts)
}

// partsJob adds sums of parts, in order on any thread.
type partsJob struct {
	p    *Param
	sums []float32 // part i begins at i*step
	step int
	n    int // number of parts
	cuts int
}

// partValues is the number of a gradient's values that repays a part.
const partValues = 4096

func (j *partsJob) part(w *worker, i int) {
	lo, hi := len(j.p.Data)*i/j.cuts, len(j.p.Data)*(i+1)/j.cuts
	grad := j.p.Grad[lo:hi]
	for n := range j.n {
		sums := j.sums[n*j.step+lo : n*j.step+hi]
		if n == 0 && !j.p.touched {
			copy(grad, sums)
		} else {
			w.k.Add(grad, sums)
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

// biasGrad adds the gradient of the bias, the sum of rows of dy.
func (o *convOp) biasGrad(t *Tape) {
	if o.l.B == nil {
		return
	}
	rows := len(o.y.grad) / o.out
	parts := min(convParts, (rows+biasRows-1)/biasRows)
	o.packed.sums = sized(o.packed.sums, parts*o.out)
	o.job.run(t, o, biasPart, parts, rows, 1)
	for i := range parts {
		addPart(t, o.l.B, o.packed.sums[i*o.out:][:o.out], i)
	}
}

// biasRows is the number of rows that repays a part.
const biasRows = 1024

// biasPart sums rows lo to hi-1 of dy.
func biasPart(o *convOp, w *worker, part, lo, hi int) {
	sum := o.packed.sums[part*o.out:][:o.out]
	clear(sum)
	w.k.SumRows(sum, o.y.grad[lo*o.out:], o.out, hi-lo)
}
