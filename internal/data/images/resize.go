package images

import (
	"math"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// axis resamples one dimension: output i is the sum, over k < width, of weights[i*width+k] times
// input first[i]+k.
type axis struct {
	first   []int32
	weights []int32 // fixed point, 22 fractional bits
	width   int     // weights per output, padded with 0
}

const weightBits = 22 // sums of 8-bit pixels fit 32 bits

// plan prepares outputs [offset, offset+n) of resampling `in` inputs to `out` outputs with the
// triangle filter, widened for a smaller image (bilinear with antialias). The arithmetic is
// Pillow's (Resample.c): equal pixels give an equal result.
func (a *axis) plan(in, out, offset, n int) {
	scale := float64(in) / float64(out)
	filter := math.Max(scale, 1)
	a.width = widest(scale, filter, in, offset, n)
	a.first = bytesview.Sized(a.first, n)
	a.weights = bytesview.Sized(a.weights, n*a.width)
	for i := range n {
		centre := (float64(offset+i) + 0.5) * scale
		lo, hi := reach(scale, filter, in, offset+i)
		a.first[i] = int32(lo)
		taps := a.weights[i*a.width:][:a.width]
		clear(taps)
		var sum float64
		for x := lo; x < hi; x++ {
			sum += triangle((float64(x) - centre + 0.5) / filter)
		}
		for x := lo; x < hi; x++ {
			w := triangle((float64(x)-centre+0.5)/filter) / sum
			taps[x-lo] = int32(w*(1<<weightBits) + 0.5)
		}
	}
	a.tighten(in)
}

// widest returns the largest number of inputs of an output.
func widest(scale, filter float64, in, offset, n int) int {
	most := 1
	for i := range n {
		lo, hi := reach(scale, filter, in, offset+i)
		most = max(most, hi-lo)
	}
	return most
}

// reach returns the inputs [lo, hi) of an output.
func reach(scale, filter float64, in, out int) (lo, hi int) {
	centre := (float64(out) + 0.5) * scale
	return max(int(centre-filter+0.5), 0), min(int(centre+filter+0.5), in)
}

// tighten moves windows that exceed the last input back, so that every output reads width inputs.
func (a *axis) tighten(in int) {
	for i, f := range a.first {
		if over := int(f) + a.width - in; over > 0 {
			taps := a.weights[i*a.width:][:a.width]
			copy(taps[over:], taps[:a.width-over])
			clear(taps[:over])
			a.first[i] -= int32(over)
		}
	}
}

func triangle(x float64) float64 {
	if x = math.Abs(x); x < 1 {
		return 1 - x
	}
	return 0
}

// resizer resamples RGB images in reused memory.
type resizer struct {
	x, y   axis
	middle []uint8 // rows of the input with resampled width
	sums   []int32 // sums of one output row
}

// window is the part [offset, offset+n) of a dimension resampled to out.
type window struct{ out, offset, n int }

// resize writes the window of an image of w x h RGB bytes to dst, wx.n*wy.n pixels: columns first,
// then rows, each rounded to bytes as in Pillow.
func (r *resizer) resize(dst, src []uint8, w, h int, wx, wy window) {
	r.x.plan(w, wx.out, wx.offset, wx.n)
	r.y.plan(h, wy.out, wy.offset, wy.n)
	top := int(r.y.first[0])
	bottom := top
	for _, f := range r.y.first {
		bottom = max(bottom, int(f)+r.y.width)
	}
	stride := 3 * wx.n
	r.middle = bytesview.Sized(r.middle, (bottom-top)*stride)
	for y := top; y < bottom; y++ {
		r.x.resampleRow(r.middle[(y-top)*stride:][:stride], src[y*w*3:][:w*3])
	}
	for i, f := range r.y.first {
		rows := r.middle[(int(f)-top)*stride:][:r.y.width*stride]
		r.down(dst[i*stride:][:stride], rows, r.y.weights[i*r.y.width:][:r.y.width])
	}
}

const half = 1 << (weightBits - 1)

// resampleRow resamples one row. A sum has 30 bits, so red and blue share a word.
func (a *axis) resampleRow(dst, src []uint8) {
	for i, f := range a.first {
		taps := a.weights[i*a.width:][:a.width]
		in := src[3*f:][:3*len(taps)]
		outer, green := uint64(half<<32|half), uint64(half)
		for _, w := range taps {
			p := (*[3]uint8)(in)
			in = in[3:]
			outer += uint64(w) * (uint64(p[0]) | uint64(p[2])<<32)
			green += uint64(w) * uint64(p[1])
		}
		out := (*[3]uint8)(dst[3*i:])
		out[0], out[1], out[2] = clip(int32(uint32(outer))), clip(int32(green)), clip(int32(outer>>32))
	}
}

// down adds weighted rows, up to four at a time, in a row of sums.
func (r *resizer) down(dst, rows []uint8, taps []int32) {
	stride := len(dst)
	row := func(i int) ([]uint8, int32) {
		if i < len(taps) {
			return rows[i*stride:][:stride], taps[i]
		}
		return rows[:stride], 0
	}
	if len(taps) <= 4 {
		a, wa := row(0)
		b, wb := row(1)
		c, wc := row(2)
		d, wd := row(3)
		for x := range dst {
			dst[x] = clip(half + wa*int32(a[x]) + wb*int32(b[x]) + wc*int32(c[x]) + wd*int32(d[x]))
		}
		return
	}
	r.sums = bytesview.Sized(r.sums, stride)
	sums := r.sums
	clear(sums)
	for i := 0; i < len(taps); i += 4 {
		a, wa := row(i)
		b, wb := row(i + 1)
		c, wc := row(i + 2)
		d, wd := row(i + 3)
		for x := range sums {
			sums[x] += wa*int32(a[x]) + wb*int32(b[x]) + wc*int32(c[x]) + wd*int32(d[x])
		}
	}
	for x, sum := range sums {
		dst[x] = clip(half + sum)
	}
}

// clip rounds a weighted sum. The rounded weights can exceed 1 slightly.
func clip(sum int32) uint8 {
	return uint8(min(uint32(sum)>>weightBits, 255))
}
