package nn

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// convTrial is a convolution of some shape, used once or twice by a loss.
type convTrial struct {
	n, h, w, in, out  int
	kh, kw            int
	cfg               Conv
	uses, backwards   int
	x                 *Tensor
	l                 Layer
	c                 []float32 // the loss is c·y for each use
	level             string
	threads           int
	evaluates, biased bool
}

func newConvTrial(r *rand.Rand) *convTrial {
	channels := []int{1, 2, 3, 5, 15, 16, 16, 17, 32, 32, 33, 48}
	c := &convTrial{
		n: 1 + r.IntN(4), h: 1 + r.IntN(9), w: 1 + r.IntN(9),
		in: channels[r.IntN(len(channels))], out: channels[r.IntN(len(channels))],
		kh: 3, kw: 3, cfg: Conv{Stride: 1, Pad: r.IntN(3)},
		uses: 1 + r.IntN(2), backwards: 1 + r.IntN(2),
		evaluates: r.IntN(2) == 0, biased: r.IntN(2) == 0,
	}
	if r.IntN(2) == 0 {
		c.kh, c.kw, c.cfg.Stride = 1+r.IntN(4), 1+r.IntN(4), 1+r.IntN(3)
	}
	if r.IntN(2) == 0 {
		c.cfg.Activation = ReLU
	}
	c.h, c.w = max(c.h, c.kh-2*c.cfg.Pad), max(c.w, c.kw-2*c.cfg.Pad)
	return c
}

func (c *convTrial) String() string {
	return fmt.Sprintf("%s, %d threads: %d images %dx%dx%d to %d by %dx%d %+v, %d uses, %d backwards", c.level, c.threads,
		c.n, c.h, c.w, c.in, c.out, c.kh, c.kw, c.cfg, c.uses, c.backwards)
}

// naive is y and, for one use, the gradients of x, W and b.
func (c *convTrial) naive(y, dx, dw, db []float32) {
	oh, ow := (c.h+2*c.cfg.Pad-c.kh)/c.cfg.Stride+1, (c.w+2*c.cfg.Pad-c.kw)/c.cfg.Stride+1
	taps := func(p int, f func(x, w int)) { // of place p: where its window's pixels and their weights begin
		for k := range c.kh * c.kw {
			iy, ix := p/ow%oh*c.cfg.Stride+k/c.kw-c.cfg.Pad, p%ow*c.cfg.Stride+k%c.kw-c.cfg.Pad
			if iy >= 0 && ix >= 0 && iy < c.h && ix < c.w {
				f(((p/ow/oh*c.h+iy)*c.w+ix)*c.in, k*c.in*c.out)
			}
		}
	}
	for at := range c.n * oh * ow * c.out {
		p, o, v, g := at/c.out, at%c.out, 0.0, c.c[at]
		if c.l.B != nil {
			v = float64(c.l.B.Data[o])
		}
		taps(p, func(x, w int) {
			for i := range c.in {
				v += float64(c.x.Data[x+i]) * float64(c.l.W.Data[w+i*c.out+o])
			}
		})
		if c.cfg.Activation == ReLU && v <= 0 {
			v, g = 0, 0
		}
		y[at] = float32(v)
		db[o] += g
		taps(p, func(x, w int) {
			for i := range c.in {
				dx[x+i] += g * c.l.W.Data[w+i*c.out+o]
				dw[w+i*c.out+o] += g * c.x.Data[x+i]
			}
		})
	}
}

// loss is the recorded one; y is the result of the first use.
func (c *convTrial) loss(t *Tape, r *rand.Rand) (y, loss *Tensor) {
	y = t.Conv2D(c.x, c.l, c.cfg)
	if c.c == nil {
		c.c = random(r, y.Len())
	}
	loss = t.dot(y, c.c)
	if c.uses == 2 {
		loss = t.Add(loss, t.dot(t.Conv2D(c.x, c.l, c.cfg), c.c))
	}
	return y, loss
}

func (c *convTrial) run(t *testing.T, r *rand.Rand, tape *Tape) {
	ps := NewParams(r.Uint64())
	c.l.W = ps.New("w", Uniform(1), c.kh, c.kw, c.in, c.out)
	if c.biased {
		c.l.B = ps.New("b", Uniform(1), c.out)
	}
	c.x = NewTensor(c.n, c.h, c.w, c.in)
	c.x.needs = r.IntN(4) > 0
	copy(c.x.Data, random(r, c.x.Len()))
	if err := ps.Arrange(func(t *Tape) *Tensor { _, loss := c.loss(t, r); return loss }); err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	if c.evaluates {
		tape.ResetEval()
		c.loss(tape, r)
	}
	var y, loss *Tensor
	for i := range c.backwards {
		ready := func(int) {}
		if i < c.backwards-1 {
			ready = nil
		}
		tape.Reset()
		y, loss = c.loss(tape, r)
		tape.Backward(loss, ready)
	}
	wantY, dx, dw, db := make([]float32, y.Len()), make([]float32, c.x.Len()), make([]float32, len(c.l.W.Data)), make([]float32, c.out)
	c.naive(wantY, dx, dw, db)
	check := func(what string, got, want []float32, times int) {
		for i := range want {
			want[i] *= float32(times)
		}
		if d := distance(got, want); !(d < 1e-4) {
			t.Errorf("%v: %s is off by %.1e of its largest value", c, what, d)
		}
	}
	check("y", y.Data, wantY, 1)
	check("dw", c.l.W.Grad, dw, c.uses*c.backwards)
	if c.x.needs {
		check("dx", c.x.gradient(), dx, c.uses)
	}
	if c.biased {
		check("db", c.l.B.Grad, db, c.uses*c.backwards)
	}
}

// Convolutions of all kinds of shapes, whatever a tape did before.
func TestConvolutionsOfAnyShape(t *testing.T) {
	r, trials := rand.New(rand.NewPCG(42, 43)), 40
	if testing.Short() {
		trials = 10
	}
	for threads, k := range append(simd.Levels(), simd.Host()) {
		tape := NewTape(TapeConfig{Kernels: k, Threads: threads + 1})
		for range trials {
			c := newConvTrial(r)
			c.level, c.threads = k.Name(), threads+1
			c.run(t, r, tape)
		}
		tape.Close()
	}
}
