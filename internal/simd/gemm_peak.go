package simd

// peakTurns is the number of iterations of one call of fma: some 20 us.
const peakTurns = 1 << 10

// Peak executes about flops floating-point operations at the highest rate of the level's
// multiply-add instructions, in registers only, and returns their number: with the elapsed time,
// the upper limit for matrix products. The portable level has no such instructions and returns 0.
func (k *Kernels) Peak(flops int) int {
	if k.gemm.fma == nil {
		return 0
	}
	done, call := 0, peakTurns*4*k.gemm.mr*k.gemm.lanes*2
	for done < flops {
		k.gemm.fma(peakTurns)
		done += call
	}
	return done
}
