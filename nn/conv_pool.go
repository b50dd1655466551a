package nn

import "github.com/ringo-ml/ringo/internal/simd"

// pool writes the maximum of each 2x2 window of plane to y, and which one it
// was, or 4 where ReLU has cut it off, to from.
func (o *convOp) pool(_ *simd.Kernels, y []float32, from []uint8, plane []float32) {
	h, w, c := o.win.OutHeight(), o.win.OutWidth(), o.out
	relu := o.cfg.Activation == ReLU
	for i := range h / 2 {
		for j := range w / 2 {
			at, to := (2*i*w+2*j)*c, (i*(w/2)+j)*c
			for l := range c {
				best, which := plane[at+l], uint8(0)
				for q, off := range [3]int{c, w * c, w*c + c} {
					if v := plane[at+off+l]; v > best {
						best, which = v, uint8(q+1)
					}
				}
				if relu && !(best > 0) {
					if best < 0 {
						best = 0
					}
					which = 4
				}
				y[to+l], from[to+l] = best, which
			}
		}
	}
}

// unpool is the gradient of plane.
func (o *convOp) unpool(_ *simd.Kernels, plane, dy []float32, from []uint8) {
	h, w, c := o.win.OutHeight(), o.win.OutWidth(), o.out
	clear(plane)
	offs := [4]int{0, c, w * c, w*c + c}
	for i := range h / 2 {
		for j := range w / 2 {
			at, to := (2*i*w+2*j)*c, (i*(w/2)+j)*c
			for l := range c {
				if q := from[to+l]; q < 4 {
					plane[at+offs[q]+l] = dy[to+l]
				}
			}
		}
	}
}

func sizedBytes(buf []uint8, n int) []uint8 {
	if cap(buf) >= n {
		return buf[:n]
	}
	return make([]uint8, n)
}
