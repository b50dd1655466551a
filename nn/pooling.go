package nn

import (
	"github.com/ringo-ml/ringo/internal/simd"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// Pool configures square windows over an image.
type Pool struct {
	// Size is the side of a window.
	Size int
	// Stride is the step of windows in pixels. 0 means Size: windows do not overlap.
	Stride int
	// Pad is the number of pixels added around the image, at most half of Size.
	Pad int
}

type windowOp struct {
	unary
	plan simd.PoolPlan
	from []uint8 // index of the maximum in its window; not used by the mean

	job  passJob[windowOp]
	mean bool
	dx   []float32
}

// MaxPool is the maximum of each window of x, [n, h, w, c]: the result is [n,
// (h+2·Pad-Size)/Stride+1, (w+2·Pad-Size)/Stride+1, c]. Padding is never the maximum. The gradient
// goes to the first maximum of a window in row order; backward needs a byte per window.
func (t *Tape) MaxPool(x *Tensor, p Pool) *Tensor {
	o := t.window("max-pool", x, p)
	o.mean = false
	o.from = bytesview.Sized(o.from, o.y.Len())
	o.job.each(t, o, func(o *windowOp, w *worker, s, _, _ int) {
		w.k.MaxPool(sampleOf(o.y.Data, o.x, s), sampleOf(o.from, o.x, s), sampleOf(o.x.Data, o.x, s), &o.plan)
	}, x.Shape[0], 1)
	return &o.y
}

// AvgPool is the mean of each window, with the windows of MaxPool. Padding counts as zeros.
func (t *Tape) AvgPool(x *Tensor, p Pool) *Tensor {
	o := t.window("average pool", x, p)
	o.mean = true
	o.job.each(t, o, func(o *windowOp, w *worker, s, _, _ int) {
		w.k.AvgPool(sampleOf(o.y.Data, o.x, s), sampleOf(o.x.Data, o.x, s), &o.plan)
	}, x.Shape[0], 1)
	return &o.y
}

func (t *Tape) window(name string, x *Tensor, p Pool) *windowOp {
	wantImages(name, x)
	if p.Stride == 0 {
		p.Stride = p.Size
	}
	s := x.Shape
	win := simd.Window{Channels: s[3], Height: s[1], Width: s[2], Size: p.Size, Stride: p.Stride, Pad: p.Pad}
	if err := win.Validate(); err != nil {
		panic(&ShapeError{Op: name, Required: "windows that fit the image: " + err.Error(), Got: append([]int(nil), s...)})
	}
	o := record[windowOp](t)
	o.x = x
	o.plan.Set(win)
	t.begin(o, s[0], win.OutHeight(), win.OutWidth(), s[3])
	return o
}

func wantImages(name string, x *Tensor) {
	require(len(x.Shape) == 4 && len(x.Data) > 0, name, "images [n, h, w, c]", x.Shape...)
}

// sampleOf returns sample s of data, which has equal parts for all samples of x.
func sampleOf[T any](data []T, x *Tensor, s int) []T {
	n := len(data) / x.Shape[0]
	return data[s*n : (s+1)*n]
}

func (o *windowOp) backward(t *Tape) {
	o.dx = t.into(o.x)
	o.job.each(t, o, func(o *windowOp, w *worker, s, _, _ int) {
		dx, dy := sampleOf(o.dx, o.x, s), sampleOf(o.y.grad, o.x, s)
		if o.mean {
			w.k.AvgPoolGrad(dx, dy, &o.plan)
		} else {
			w.k.MaxPoolGrad(dx, dy, sampleOf(o.from, o.x, s), &o.plan)
		}
	}, o.x.Shape[0], 1)
	t.merge(o.x, o.dx)
}

type globalPoolOp struct {
	unary
	dx  []float32
	job passJob[globalPoolOp]
}

// GlobalAvgPool is the mean of each channel of each image: x is [n, h, w, c], the result is [n, c].
func (t *Tape) GlobalAvgPool(x *Tensor) *Tensor {
	wantImages("global average pool", x)
	o := record[globalPoolOp](t)
	o.x = x
	y := t.begin(o, x.Shape[0], x.Shape[3])
	o.job.each(t, o, globalPoolForward, x.Shape[0], 1)
	return y
}

// share is one pixel's part of the mean.
func (o *globalPoolOp) share() float32 { return 1 / float32(o.x.Shape[1]*o.x.Shape[2]) }

func globalPoolForward(o *globalPoolOp, w *worker, s, _, _ int) {
	y, x := sampleOf(o.y.Data, o.x, s), sampleOf(o.x.Data, o.x, s)
	clear(y)
	w.k.SumRows(y, x, len(y), len(x)/len(y))
	w.k.Scale(y, o.share())
}

func (o *globalPoolOp) backward(t *Tape) {
	o.dx = t.into(o.x)
	o.job.each(t, o, globalPoolBackward, o.x.Shape[0], 1)
	t.merge(o.x, o.dx)
}

func globalPoolBackward(o *globalPoolOp, w *worker, s, _, _ int) {
	dx, dy := sampleOf(o.dx, o.x, s), sampleOf(o.y.grad, o.x, s)
	w.k.Scale(dy, o.share())
	for c := 0; c < len(dx); c += len(dy) {
		copy(dx[c:], dy)
	}
}

type subsampleOp struct {
	unary
	stride int
	dx     []float32 // nil: forward
}

// SubsamplePad takes every stride-th pixel of every stride-th row of x, [n, h, w, c], and puts
// zeros before and after its channels, equally on both sides, an odd one after: the result is [n,
// ceil(h/stride), ceil(w/stride), channels]. It is the shortcut without parameters (option A) of K.
// He and others, "Deep residual learning", 2015.
func (t *Tape) SubsamplePad(x *Tensor, stride, channels int) *Tensor {
	const name = "subsampling"
	wantImages(name, x)
	require(stride > 0, name, "a positive stride", stride)
	require(channels >= x.Shape[3], name, "at least as many channels as the input's", channels, x.Shape[3])
	o := record[subsampleOp](t)
	o.x, o.stride = x, stride
	y := t.begin(o, x.Shape[0], (x.Shape[1]+stride-1)/stride, (x.Shape[2]+stride-1)/stride, channels)
	o.dx = nil
	t.pool.run(o, x.Shape[0])
	return y
}

// part copies sample s to the result, or adds the result's gradient to dx if dx is not nil.
func (o *subsampleOp) part(_ *worker, s int) {
	in, out := o.x.Shape, o.y.Shape
	before := (out[3] - in[3]) / 2
	if o.dx == nil {
		clear(sampleOf(o.y.Data, o.x, s))
	} else {
		clear(sampleOf(o.dx, o.x, s))
	}
	for i := range out[1] {
		for j := range out[2] {
			from := ((s*in[1]+i*o.stride)*in[2] + j*o.stride) * in[3]
			to := ((s*out[1]+i)*out[2]+j)*out[3] + before
			if o.dx == nil {
				copy(o.y.Data[to:to+in[3]], o.x.Data[from:])
			} else {
				copy(o.dx[from:from+in[3]], o.y.grad[to:])
			}
		}
	}
}

func (o *subsampleOp) backward(t *Tape) {
	o.dx = t.into(o.x)
	t.pool.run(o, o.x.Shape[0])
	t.merge(o.x, o.dx)
}
