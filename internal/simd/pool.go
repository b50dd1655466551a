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
	oh, ow := h/2, w/2
	checkPool("MaxPool2", len(y), len(arg), len(x), planes, h, w)
	for p := range planes {
		for i := range oh {
			at, in := (p*oh+i)*ow, (p*h+2*i)*w
			k.poolRow(y[at:at+ow], arg[at:at+ow], x[in:in+2*ow], x[in+w:in+w+2*ow], relu)
		}
	}
}

// MaxPool2Grad writes the gradient dx[planes, h, w] of [Kernels.MaxPool2]: dy
// where arg says it was taken, and 0 elsewhere.
func (k *Kernels) MaxPool2Grad(dx, dy []float32, arg []uint8, planes, h, w int) {
	oh, ow := h/2, w/2
	checkPool("MaxPool2Grad", len(dy), len(arg), len(dx), planes, h, w)
	for p := range planes {
		for i := range oh {
			at, in := (p*oh+i)*ow, (p*h+2*i)*w
			top, bottom := dx[in:in+w], dx[in+w:in+2*w]
			clear(top[2*ow:])
			clear(bottom[2*ow:])
			k.poolGradRow(top, bottom, dy[at:at+ow], arg[at:at+ow])
		}
		if h%2 == 1 {
			clear(dx[(p*h+h-1)*w:][:w])
		}
	}
}

func checkPool(op string, outputs, args, inputs, planes, h, w int) {
	if want := planes * (h / 2) * (w / 2); outputs != want || args != want || inputs != planes*h*w {
		panic(fmt.Sprintf("simd: %s: %d planes of %dx%d, but %d outputs, %d positions and %d inputs", op, planes, h, w, outputs, args, inputs))
	}
}

func (k *Kernels) poolRow(y []float32, arg []uint8, top, bottom []float32, relu bool) {
	for k.vec.pool != nil && len(y) > 0 {
		n := min(len(y), 16)
		k.vec.pool(&y[0], &arg[0], &top[0], &bottom[0], n, flag(relu))
		y, arg, top, bottom = y[n:], arg[n:], top[2*n:], bottom[2*n:]
	}
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

func (k *Kernels) poolGradRow(top, bottom, dy []float32, arg []uint8) {
	for k.vec.poolGrad != nil && len(dy) > 0 {
		n := min(len(dy), 16)
		k.vec.poolGrad(&top[0], &bottom[0], &dy[0], &arg[0], n)
		dy, arg, top, bottom = dy[n:], arg[n:], top[2*n:], bottom[2*n:]
	}
	for j, g := range dy {
		var window [5]float32
		window[min(arg[j], 4)] = g
		top[2*j], top[2*j+1] = window[0], window[1]
		bottom[2*j], bottom[2*j+1] = window[2], window[3]
	}
}
