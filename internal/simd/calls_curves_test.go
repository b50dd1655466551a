package simd

import "testing"

// The kernels of curves, norms and windows are given bounded work, too.
func TestCallsOfCurvesAreShort(t *testing.T) {
	for _, level := range Levels() {
		if level.act.exp == nil {
			continue
		}
		most := calls{}
		runLargeCurves(countedCurves(level, most))
		for kernel, limit := range map[string]int{
			"exp": callFloats, "expSum": sumFloats, "norm": callFloats, "flush": callFloats,
			"max": callTapFloats, "layer": callFloats,
		} {
			if got := most[kernel]; got > limit || got < limit/2 {
				t.Errorf("%s: one call of %s was given %d at most, want at most %d and half of that at least", level.Name(), kernel, got, limit)
			}
		}
	}
}

func countedCurves(k *Kernels, c calls) *Kernels {
	out := *k
	exp, expSum, sums, flush, layer, maxWindow := k.act.exp, k.act.expSum, k.norm.sums, k.norm.flush, k.layer.apply, k.window.max
	out.act.exp = func(dst, x *float32, n int) { c.note("exp", n); exp(dst, x, n) }
	out.act.expSum = func(x *float32, n int, shift float32) float32 { c.note("expSum", n); return expSum(x, n, shift) }
	out.norm.sums = func(x *float32, n int, params, acc *float32, period int) {
		c.note("norm", n)
		sums(x, n, params, acc, period)
	}
	out.norm.flush = func(sums *float64, acc *float32, n int) { c.note("flush", n); flush(sums, acc, n) }
	out.layer.apply = func(y, x, gamma, beta, stats *float32, rows, d int, count, epsilon float32) {
		c.note("layer", rows*d)
		layer(y, x, gamma, beta, stats, rows, d, count, epsilon)
	}
	out.window.max = func(y *float32, arg *uint8, x *float32, taps *int64, n, pixels, bytes, xstep, ystep int) {
		c.note("max", n*pixels*bytes/4)
		maxWindow(y, arg, x, taps, n, pixels, bytes, xstep, ystep)
	}
	return &out
}

func runLargeCurves(k *Kernels) {
	const n = 3*callFloats + 5
	x, y := make([]float32, n), make([]float32, n)
	k.Exp(y, x)
	k.ExpSum(x, 0)
	for _, channels := range []int{64, 4099} { // the second makes a period longer than a call
		var p NormParams
		p.Resize(channels)
		clear(p.Values)
		k.NormSums(make([]float64, 2*p.Period), make([]float32, 2*p.Period), x, &p)
	}
	const d = 1024
	k.LayerNorm(y[:3*callFloats], x[:3*callFloats], x[:d], x[:d], make([]float32, 6*callFloats/d), 1e-5)
	var p PoolPlan
	p.Set(Window{Channels: 64, Height: 3, Width: 4000, Size: 3, Stride: 1, Pad: 1})
	k.MaxPool(make([]float32, p.outLen()), make([]uint8, p.outLen()), make([]float32, p.inLen()), &p)
}
