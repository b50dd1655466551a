package simd

import "fmt"

// MaxPool2 computes the maximum of every 2x2 window, at stride 2, of planes
// images x[planes, h, w] into y[planes, h/2, w/2]; an odd last row or column
// is left out. arg says for each output which of its window was taken: 0 and 1
// in the upper row, 2 and 3 in the lower; the first of equals. NaN counts as
// greater than all; the first NaN is taken.
//
// With relu set, y is ReLU of the maximum, and arg is 4 (none) where y is not
// positive, so that [Kernels.MaxPool2Grad] is the gradient of both together:
// pooling after ReLU gives the same as ReLU after pooling, at a quarter of the
// work.
func (k *Kernels) MaxPool2(y []float32, arg []uint8, x []float32, planes, h, w int, relu bool) {
	checkPool("MaxPool2", len(y), len(arg), len(x), planes, h, w)
	eachRun(planes, h, w, func(at, in, rows int) {
		oh, ow := rows, w/2
		if k.vec.pool != nil {
			for j := 0; j < ow; j += 16 {
				k.vec.pool(&y[at+j], &arg[at+j], &x[in+2*j], oh, w, ow, min(16, ow-j), flag(relu))
			}
			return
		}
		for i := range oh {
			at, in := at+i*ow, in+2*i*w
			poolRow(y[at:at+ow], arg[at:at+ow], x[in:in+2*ow], x[in+w:in+w+2*ow], relu)
		}
	})
}

// eachRun calls f for runs of output rows, at `at` of the output, whose input
// rows lie in pairs from `in` of the input. A run is work for one assembly call
// a column chunk: up to 512 rows, in several planes where their height is even.
func eachRun(planes, h, w int, f func(at, in, rows int)) {
	if w < 2 || h < 2 {
		return
	}
	if h%2 == 0 {
		planes, h = 1, planes*h
	}
	for p := range planes {
		for i := 0; i < h/2; i += 512 {
			f((p*(h/2)+i)*(w/2), (p*h+2*i)*w, min(512, h/2-i))
		}
	}
}

// MaxPool2Grad writes the gradient dx[planes, h, w] of [Kernels.MaxPool2]: dy
// where arg says it was taken, and 0 elsewhere.
func (k *Kernels) MaxPool2Grad(dx, dy []float32, arg []uint8, planes, h, w int) {
	checkPool("MaxPool2Grad", len(dy), len(arg), len(dx), planes, h, w)
	clearOdd(dx, planes, h, w)
	eachRun(planes, h, w, func(at, in, rows int) {
		oh, ow := rows, w/2
		if k.vec.poolGrad != nil {
			for j := 0; j < ow; j += 16 {
				k.vec.poolGrad(&dx[in+2*j], &dy[at+j], &arg[at+j], oh, w, ow, min(16, ow-j))
			}
			return
		}
		for i := range oh {
			at, in := at+i*ow, in+2*i*w
			poolGradRow(dx[in:in+2*ow], dx[in+w:in+w+2*ow], dy[at:at+ow], arg[at:at+ow])
		}
	})
}

// clearOdd zeroes what no window covers: an odd last row or column.
func clearOdd(x []float32, planes, h, w int) {
	if h%2 == 1 {
		for p := range planes {
			clear(x[(p*h+h-1)*w:][:w])
		}
	}
	if w%2 == 1 {
		for i := w - 1; i < len(x); i += w {
			x[i] = 0
		}
	}
}

func checkPool(op string, outputs, args, inputs, planes, h, w int) {
	if want := planes * (h / 2) * (w / 2); outputs != want || args != want || inputs != planes*h*w {
		panic(fmt.Sprintf("simd: %s: %d planes of %dx%d, but %d outputs, %d positions and %d inputs", op, planes, h, w, outputs, args, inputs))
	}
}

func poolRow(y []float32, arg []uint8, top, bottom []float32, relu bool) {
	for j := range y {
		y[j], arg[j] = pool(top[2*j], top[2*j+1], bottom[2*j], bottom[2*j+1], relu)
	}
}

func pool(a, b, c, d float32, relu bool) (float32, uint8) {
	best, at := a, uint8(0)
	for i, v := range [...]float32{b, c, d} {
		if v > best || v != v && best == best {
			best, at = v, uint8(i+1)
		}
	}
	if relu {
		if !(best > 0) {
			at = 4
		}
		if best < 0 {
			best = 0
		}
	}
	return best, at
}

func poolGradRow(top, bottom, dy []float32, arg []uint8) {
	for j, g := range dy {
		var window [5]float32
		window[min(arg[j], 4)] = g
		top[2*j], top[2*j+1] = window[0], window[1]
		bottom[2*j], bottom[2*j+1] = window[2], window[3]
	}
}
