package simd

// peakTurns is how many turns one call of fma does: some 20 us.
const peakTurns = 1 << 10

// Peak does about flops floating-point operations at the highest rate that the
// level's multiply-add instructions reach, on registers alone, and returns how
// many it did: with the time that takes, the roof under which matrix products
// run. The portable level has no such instructions and does none.
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
