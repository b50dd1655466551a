package simd

// activationLevel holds the kernels based on the exponential. Counts are as in vectorLevel; kernels
// that return a value take multiples of 16.
type activationLevel struct {
	exp, sigmoid, tanh, gelu        func(dst, x *float32, n int)
	sigmoidGrad, tanhGrad, geluGrad func(dx, dy, y *float32, n int)
	maximum                         func(x *float32, n int) float32
	expSum                          func(x *float32, n int, shift float32) float32
	expScale                        func(dst, x *float32, n int, shift, scale float32)
}

// Exp computes dst[i] = exp(x[i]), within 1.5 units in the last place; results
// below 2⁻¹²⁶ are 0. dst may be x.
func (k *Kernels) Exp(dst, x []float32) { k.mapped("Exp", k.act.exp, exp, dst, x) }

// Sigmoid computes dst[i] = 1/(1+exp(-x[i])). dst may be x.
func (k *Kernels) Sigmoid(dst, x []float32) { k.mapped("Sigmoid", k.act.sigmoid, sigmoid, dst, x) }

// Tanh computes dst[i] = tanh(x[i]), within 3 units in the last place. dst may be x.
func (k *Kernels) Tanh(dst, x []float32) { k.mapped("Tanh", k.act.tanh, tanh, dst, x) }

// GELU computes x·(1+tanh(sqrt(2/π)·(x + 0.044715 x³)))/2, GPT-2's form, which equals x·sigmoid of
// twice the argument. dst may be x.
func (k *Kernels) GELU(dst, x []float32) { k.mapped("GELU", k.act.gelu, gelu, dst, x) }

func (k *Kernels) mapped(op string, bulk func(dst, x *float32, n int), one func(float32) float32, dst, x []float32) {
	if len(dst) != len(x) {
		sameLength(op, len(dst), len(x))
	}
	for n := k.bulk(len(dst)); n > 0; n = k.bulk(len(dst)) {
		bulk(&dst[0], &x[0], n)
		dst, x = dst[n:], x[n:]
	}
	for i, v := range x {
		dst[i] = one(v)
	}
}

// SigmoidGrad computes dx[i] = dy[i]·y[i]·(1-y[i]), y the output of Sigmoid. dx may be dy or y.
func (k *Kernels) SigmoidGrad(dx, dy, y []float32) {
	k.sloped("SigmoidGrad", k.act.sigmoidGrad, func(y float32) float32 { return y * (1 - y) }, dx, dy, y)
}

// TanhGrad computes dx[i] = dy[i]·(1-y[i]²), y the output of Tanh. dx may be dy or y.
func (k *Kernels) TanhGrad(dx, dy, y []float32) {
	k.sloped("TanhGrad", k.act.tanhGrad, func(y float32) float32 { return 1 - float32(y*y) }, dx, dy, y)
}

// GELUGrad computes dx[i] = dy[i]·GELU'(x[i]), x the input of GELU. dx may be dy or x.
func (k *Kernels) GELUGrad(dx, dy, x []float32) {
	k.sloped("GELUGrad", k.act.geluGrad, geluSlope, dx, dy, x)
}

func (k *Kernels) sloped(op string, bulk func(dx, dy, y *float32, n int), slope func(float32) float32, dx, dy, y []float32) {
	if len(dx) != len(dy) || len(dx) != len(y) {
		sameLength(op, len(dx), len(dy), len(y))
	}
	for n := k.bulk(len(dx)); n > 0; n = k.bulk(len(dx)) {
		bulk(&dx[0], &dy[0], &y[0], n)
		dx, dy, y = dx[n:], dy[n:], y[n:]
	}
	for i, v := range y {
		dx[i] = float32(slope(v) * dy[i])
	}
}
