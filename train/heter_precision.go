package train

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/simd"
)

// timeDevice returns the times of a random micro-batch of n samples on a heter-trainer's device, in
// fp32 and in bf16.
func timeDevice(d heter.Device, cut *heter.Cut, n int) [2]time.Duration {
	var m heter.MicroBatch
	m.Size(cut, n)
	m.Seed = 1
	rnd := rand.New(rand.NewPCG(1, 0))
	for _, x := range append(m.In, m.Targets) {
		for i := range x {
			x[i] = float32(rnd.NormFloat64())
		}
	}
	for i := range m.Labels {
		m.Labels[i] = int32(rnd.IntN(max(1, cut.Classes)))
	}
	return alternate(func(i int) {
		m.BF16 = i == 1
		_ = d.Run(&m) // the device has both precisions
	})
}

// checkPrecision makes auto's choice by the times of the first remaining heter-trainer, and returns
// an error for heter-trainers that lack the precision. The call is collective.
func (f *heterParams) checkPrecision(c Config) error {
	missing, times := "", [2]time.Duration{}
	all, timed := f.heters.Precisions(), -1
	for i, p := range all {
		switch {
		case p == nil: // lost
		case !p.BF16:
			missing = fmt.Sprintf("heter-trainer %d has no products of bfloat16", i)
		case timed < 0:
			times, timed = p.Times, i
		case p.AMX != all[timed].AMX: // either may compute a micro-batch
			missing = fmt.Sprintf("one of the heter-trainers %d and %d multiplies bfloat16 by AMX, the other by AVX512-BF16, with other bits", timed, i)
		}
	}
	if c.Precision == auto {
		return f.replica.choosePrecision(c, missing, func(*simd.Kernels) precisionChoice {
			return choiceOf(times, fmt.Sprintf("a micro-batch of heter-trainer %d took %%s in bf16, %%s in fp32", timed))
		})
	}
	if c.Precision == bf16 && missing != "" {
		return setting.Errorf(settingPrecision, "bf16: %s: use fp32", missing)
	}
	return nil
}
