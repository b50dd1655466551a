package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// softmaxGrad generates simd.SoftmaxGrad for n floats, a multiple of the vector.
func softmaxGrad(l level) {
	f := l.begin("softmaxGrad", "func(dp, p *float32, n int, dot, scale float32)", "dp", "p")
	dot, scale := l.scalar("dot"), l.scalar("scale")
	f.each(func(at func(int) Mem) {
		x := l.loaded(at(0))
		VSUBPS(dot, x, x)
		VMULPS(at(1), x, x)
		VMULPS(scale, x, x)
		VMOVUPS(x, at(0))
	})
}
