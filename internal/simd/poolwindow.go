package simd

import (
	"errors"
	"fmt"
	"math"
)

// windowLevel holds the pooling kernels. A run is `pixels` adjacent outputs with windows of the
// same n taps: the position of each tap in the image, in bytes, for the first output, and its
// number. From one output to the next, inputs advance by xstep bytes and outputs by ystep. bytes is
// the processed part of a pixel, a multiple of a vector.
type windowLevel struct {
	max    func(y *float32, arg *uint8, x *float32, taps *int64, n, pixels, bytes, xstep, ystep int)
	maxAdd func(x, y *float32, arg *uint8, taps *int64, n, pixels, bytes, xstep, ystep int)
	maxPut func(x, y *float32, arg *uint8, taps *int64, n, pixels, bytes, xstep, ystep int)
	avg    func(y, x *float32, taps *int64, n, pixels, bytes, xstep, ystep int, scale float32)
	avgAdd func(x, y *float32, taps *int64, n, pixels, bytes, xstep, ystep int, scale float32)
}

// Window configures square windows of Size pixels over an image of Height x Width x Channels, with
// steps of Stride pixels and Pad pixels around the image.
type Window struct{ Channels, Height, Width, Size, Stride, Pad int }

// Validate reports sizes without windows, or windows without a pixel.
func (w Window) Validate() error {
	switch {
	case w.Channels < 1 || w.Height < 1 || w.Width < 1:
		return fmt.Errorf("an image of %dx%dx%d has no values", w.Height, w.Width, w.Channels)
	case w.Size < 1 || w.Size > 15:
		return fmt.Errorf("window size %d: want 1 to 15", w.Size)
	case w.Stride < 1:
		return fmt.Errorf("stride %d: want at least 1", w.Stride)
	case w.Pad < 0 || 2*w.Pad > w.Size:
		return fmt.Errorf("padding %d of windows of %d: want at most half", w.Pad, w.Size)
	case w.OutHeight() < 1 || w.OutWidth() < 1:
		return errors.New("the window is larger than the image")
	}
	return nil
}

// OutHeight is the number of rows of windows.
func (w Window) OutHeight() int { return outSize(w.Height, w) }

// OutWidth is the number of windows in a row.
func (w Window) OutWidth() int { return outSize(w.Width, w) }

func outSize(n int, w Window) int {
	if n+2*w.Pad < w.Size {
		return 0
	}
	return (n+2*w.Pad-w.Size)/w.Stride + 1
}

func (w Window) inLen() int  { return w.Height * w.Width * w.Channels }
func (w Window) outLen() int { return w.OutHeight() * w.OutWidth() * w.Channels }

// tiles reports whether every pixel is in exactly one window.
func (w Window) tiles() bool {
	return w.Pad == 0 && w.Size == w.Stride && w.Height%w.Size == 0 && w.Width%w.Size == 0
}

// PoolPlan is the assignment of pixels to windows. The zero value is empty. After Set, any number
// of goroutines may use it.
type PoolPlan struct {
	Window
	runs []poolRun
	taps []int64 // taps of all runs: position in bytes, number in the window
}

// poolRun is a run of adjacent outputs with the same taps.
type poolRun struct {
	at, pixels int // first output, and number of outputs
	tap, taps  int // first tap, and number of taps
}

// Set plans a valid window. If the plan has it already, Set returns immediately.
func (p *PoolPlan) Set(w Window) {
	if p.Window == w {
		return
	}
	p.Window, p.runs, p.taps = w, p.runs[:0], p.taps[:0]
	oh, ow := w.OutHeight(), w.OutWidth()
	for oy := range oh {
		for ox := 0; ox < ow; {
			pixels := 1
			if w.inside(ox) {
				for ox+pixels < ow && w.inside(ox+pixels) {
					pixels++
				}
			}
			p.add(oy, ox, pixels)
			ox += pixels
		}
	}
}

// inside reports whether the windows of column ox have all their columns.
func (w Window) inside(ox int) bool {
	x := ox*w.Stride - w.Pad
	return x >= 0 && x+w.Size <= w.Width
}

func (p *PoolPlan) add(oy, ox, pixels int) {
	run := poolRun{at: oy*p.OutWidth() + ox, pixels: pixels, tap: len(p.taps)}
	for ky := range p.Size {
		for kx := range p.Size {
			y, x := oy*p.Stride-p.Pad+ky, ox*p.Stride-p.Pad+kx
			if y >= 0 && y < p.Height && x >= 0 && x < p.Width {
				p.taps = append(p.taps, int64(4*(y*p.Width+x)*p.Channels), int64(ky*p.Size+kx))
				run.taps++
			}
		}
	}
	p.runs = append(p.runs, run)
}

// callTapFloats limits the values times taps that one assembly call adds or compares.
const callTapFloats = 128 << 10

// poolCall is the work of an assembly call.
type poolCall struct {
	x, y, pixels int // beginning in the image and in the output, in values
	taps         []int64
}

// calls cuts the runs into calls.
func (p *PoolPlan) calls(f func(c poolCall)) {
	for _, r := range p.runs {
		most := max(1, callTapFloats/(r.taps*p.Channels))
		for from := 0; from < r.pixels; from += most {
			f(poolCall{
				x: from * p.Stride * p.Channels, y: (r.at + from) * p.Channels, pixels: min(most, r.pixels-from),
				taps: p.taps[r.tap : r.tap+2*r.taps],
			})
		}
	}
}

// left calls f for the outputs of a call that assembly did not compute, channels from to the last:
// with the indices of the output and of the base of the taps.
func (p *PoolPlan) left(c poolCall, from int, f func(y, x int)) {
	for i := range c.pixels {
		for ch := from; ch < p.Channels; ch++ {
			f(c.y+i*p.Channels+ch, c.x+i*p.Stride*p.Channels+ch)
		}
	}
}

// place is the position of tap t, in values.
func (c poolCall) place(t int) int { return int(c.taps[2*t] / 4) }

// bulkChannels is the number of a pixel's channels processed by assembly.
func (k *Kernels) bulkChannels(p *PoolPlan) int {
	if k.window.max == nil {
		return 0
	}
	return p.Channels / k.vec.width * k.vec.width
}

func (p *PoolPlan) check(op string, x, y, arg int) {
	if x != p.inLen() || y != p.outLen() || arg != p.outLen() {
		panic(fmt.Sprintf("simd: %s: %+v, but %d inputs, %d outputs and %d positions", op, p.Window, x, y, arg))
	}
}

// MaxPool computes the maximum of every window of an image x into y, and its index in the window,
// in row order, into arg; the first of equals. Padding is never the maximum. NaN counts as greater
// than all; the first NaN wins.
func (k *Kernels) MaxPool(y []float32, arg []uint8, x []float32, p *PoolPlan) {
	p.check("MaxPool", len(x), len(y), len(arg))
	bulk := k.bulkChannels(p)
	p.calls(func(c poolCall) {
		if bulk > 0 {
			k.window.max(&y[c.y], &arg[c.y], &x[c.x], &c.taps[0], len(c.taps)/2, c.pixels, 4*bulk, 4*p.Stride*p.Channels, 4*p.Channels)
			if over := p.Channels - k.vec.width; bulk < p.Channels { // overlaps the channels before
				k.window.max(&y[c.y+over], &arg[c.y+over], &x[c.x+over], &c.taps[0], len(c.taps)/2, c.pixels, 4*k.vec.width, 4*p.Stride*p.Channels, 4*p.Channels)
			}
			return
		}
		p.left(c, bulk, func(i, from int) {
			best, number := float32(math.Inf(-1)), c.taps[1]
			for t := range len(c.taps) / 2 {
				if v := x[from+c.place(t)]; !(v <= best) && best == best {
					best, number = v, c.taps[2*t+1]
				}
			}
			y[i], arg[i] = best, uint8(number)
		})
	})
}

// MaxPoolGrad writes the gradient dx of [Kernels.MaxPool]: for each pixel, the sum of dy of the
// windows with it as the maximum, in the order of the windows.
func (k *Kernels) MaxPoolGrad(dx, dy []float32, arg []uint8, p *PoolPlan) {
	p.check("MaxPoolGrad", len(dx), len(dy), len(arg))
	bulk, kernel := k.bulkChannels(p), k.window.maxPut
	tiles := p.tiles()
	if !tiles {
		clear(dx)
		kernel = k.window.maxAdd
	} else if bulk == 0 {
		clear(dx)
	}
	p.calls(func(c poolCall) {
		if bulk > 0 {
			kernel(&dx[c.x], &dy[c.y], &arg[c.y], &c.taps[0], len(c.taps)/2, c.pixels, 4*bulk, 4*p.Stride*p.Channels, 4*p.Channels)
		}
		if over := p.Channels - k.vec.width; bulk > 0 && tiles { // overlapping channels are written twice with equal values
			if bulk < p.Channels {
				kernel(&dx[c.x+over], &dy[c.y+over], &arg[c.y+over], &c.taps[0], len(c.taps)/2, c.pixels, 4*k.vec.width, 4*p.Stride*p.Channels, 4*p.Channels)
			}
			return
		}
		p.left(c, bulk, func(i, from int) {
			for t := range len(c.taps) / 2 {
				if c.taps[2*t+1] == int64(arg[i]) {
					dx[from+c.place(t)] += dy[i]
				}
			}
		})
	})
}

// AvgPool computes the mean of every window of an image x into y. Padding counts as zeros.
func (k *Kernels) AvgPool(y, x []float32, p *PoolPlan) {
	p.check("AvgPool", len(x), len(y), len(y))
	bulk, scale := k.bulkChannels(p), 1/float32(p.Size*p.Size)
	p.calls(func(c poolCall) {
		if bulk > 0 {
			k.window.avg(&y[c.y], &x[c.x], &c.taps[0], len(c.taps)/2, c.pixels, 4*bulk, 4*p.Stride*p.Channels, 4*p.Channels, scale)
		}
		p.left(c, bulk, func(i, from int) {
			sum := float32(0)
			for t := range len(c.taps) / 2 {
				sum += x[from+c.place(t)]
			}
			y[i] = sum * scale
		})
	})
}

// AvgPoolGrad writes the gradient dx of [Kernels.AvgPool].
func (k *Kernels) AvgPoolGrad(dx, dy []float32, p *PoolPlan) {
	p.check("AvgPoolGrad", len(dx), len(dy), len(dy))
	clear(dx)
	bulk, scale := k.bulkChannels(p), 1/float32(p.Size*p.Size)
	p.calls(func(c poolCall) {
		if bulk > 0 {
			k.window.avgAdd(&dx[c.x], &dy[c.y], &c.taps[0], len(c.taps)/2, c.pixels, 4*bulk, 4*p.Stride*p.Channels, 4*p.Channels, scale)
		}
		p.left(c, bulk, func(i, from int) {
			g := float32(dy[i] * scale)
			for t := range len(c.taps) / 2 {
				dx[from+c.place(t)] += g
			}
		})
	})
}
