package data

import "math"

// axis is the resampling of one dimension: output i is the sum of taps
// weights[i*width:] times inputs from first[i] on.
type axis struct {
	first   []int32
	weights []int32 // of 22 bits after the point
	width   int     // taps per output, the last ones perhaps 0
}

const weightBits = 22 // a sum of 8-bit pixels fits 32 bits

// plan prepares outputs [offset, offset+n) of resampling `in` inputs to `out`
// outputs with the triangle filter, widened where the image shrinks (bilinear
// with antialias). The arithmetic is Pillow's (Resample.c): the same pixels
// give the same result.
func (a *axis) plan(in, out, offset, n int) {
	scale := float64(in) / float64(out)
	filter := math.Max(scale, 1)
	a.width = int(math.Ceil(filter))*2 + 1
	a.first = grown(a.first, n)
	a.weights = grown(a.weights, n*a.width)
	for i := range n {
		centre := (float64(offset+i) + 0.5) * scale
		lo := max(int(centre-filter+0.5), 0)
		hi := min(int(centre+filter+0.5), in)
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

// tighten moves windows that would reach past the last input back inside, so
// that every output reads width inputs.
func (a *axis) tighten(in int) {
	if a.width > in { // few inputs: shorter windows for all
		for i := range a.first {
			copy(a.weights[i*in:][:in], shifted(a.weights[i*a.width:][:a.width], int(a.first[i]), in))
			a.first[i] = 0
		}
		a.width = in
		return
	}
	for i, f := range a.first {
		if over := int(f) + a.width - in; over > 0 {
			taps := a.weights[i*a.width:][:a.width]
			copy(taps[over:], taps[:a.width-over])
			clear(taps[:over])
			a.first[i] -= int32(over)
		}
	}
}

// shifted is taps moved by first places in a window of n.
func shifted(taps []int32, first, n int) []int32 {
	out := make([]int32, n)
	copy(out[first:], taps[:min(len(taps), n-first)])
	return out
}

func triangle(x float64) float64 {
	if x = math.Abs(x); x < 1 {
		return 1 - x
	}
	return 0
}

// resizer resamples RGB images; its memory is reused.
type resizer struct {
	x, y   axis
	middle []uint8 // rows of the input, their width resampled
}

// window is the part [offset, offset+n) of a dimension resampled to out.
type window struct{ out, offset, n int }

// resize writes the window of an image of w x h RGB bytes to dst, wx.n*wy.n
// pixels: first across, then down, each rounded to bytes as Pillow does.
func (r *resizer) resize(dst, src []uint8, w, h int, wx, wy window) {
	r.x.plan(w, wx.out, wx.offset, wx.n)
	r.y.plan(h, wy.out, wy.offset, wy.n)
	top := int(r.y.first[0])
	bottom := top
	for _, f := range r.y.first {
		bottom = max(bottom, int(f)+r.y.width)
	}
	stride := 3 * wx.n
	r.middle = grown(r.middle, (bottom-top)*stride)
	for y := top; y < bottom; y++ {
		r.x.across(r.middle[(y-top)*stride:][:stride], src[y*w*3:][:w*3])
	}
	for i, f := range r.y.first {
		rows := r.middle[(int(f)-top)*stride:][:r.y.width*stride]
		down(dst[i*stride:][:stride], rows, r.y.weights[i*r.y.width:][:r.y.width])
	}
}

const half = 1 << (weightBits - 1)

// across resamples one row.
func (a *axis) across(dst, src []uint8) {
	for i, f := range a.first {
		taps := a.weights[i*a.width:][:a.width]
		in := src[3*f:][:3*len(taps)]
		red, green, blue := int32(half), int32(half), int32(half)
		for j, w := range taps {
			p := in[3*j:][:3]
			red += w * int32(p[0])
			green += w * int32(p[1])
			blue += w * int32(p[2])
		}
		out := dst[3*i:][:3]
		out[0], out[1], out[2] = clip(red), clip(green), clip(blue)
	}
}

// down sums weighted rows.
func down(dst, rows []uint8, taps []int32) {
	stride := len(dst)
	for x := range dst {
		sum := int32(half)
		at := x
		for _, w := range taps {
			sum += w * int32(rows[at])
			at += stride
		}
		dst[x] = clip(sum)
	}
}

// clip rounds a weighted sum; weights are not negative, but rounded up they
// can exceed 1 by a little.
func clip(sum int32) uint8 {
	return uint8(min(uint32(sum)>>weightBits, 255))
}
