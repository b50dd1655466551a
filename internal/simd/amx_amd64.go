package simd

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"golang.org/x/sys/cpu"
)

// hostBF16 returns the fastest kernels with products of bfloat16 operands, or nil.
func hostBF16() *Kernels {
	k := vectorBF16()
	if k == nil || !cpu.X86.HasAMXTile || !cpu.X86.HasAMXBF16 {
		return k
	}
	tiles, err := withAMX(k)
	if err != nil {
		k.remark = fmt.Sprintf("AMX is not used: %v", err)
		return k
	}
	return tiles
}

// withAMX returns kernels with products by AMX, after a comparison with Go, or an error if the
// system does not permit them or their products are wrong.
func withAMX(base *Kernels) (*Kernels, error) {
	const tiles = 1<<17 | 1<<18 // sizes and data, in XCR0
	if !cpu.X86.HasOSXSAVE || xgetbv()&tiles != tiles {
		return nil, errors.New("the operating system does not save its tiles")
	}
	if err := permitTiles(); err != nil {
		return nil, err
	}
	k := amxKernels(base, func(t *tile) {
		t.configure()
		gemmAMX(t)
	})
	return k, k.verify()
}

// amxKernels returns base, kernels of AVX512-BF16, with products computed by run. Operands are
// packed as for base, but A always in rows: a tile register loads 16 rows of 16 pairs of A, or 16
// rows of 16 columns of a panel of B.
func amxKernels(base *Kernels, run func(*tile)) *Kernels {
	k := *base
	k.name = "amx-bf16"
	k.gemm.mr, k.gemm.rowPairs = amxRows, true
	k.gemm.wide, k.gemm.narrow = slices.Repeat([]func(*tile){run}, amxRows+1), nil
	k.gemm.fma, k.gemm.lanes = fmaAMX, 256 // 4*mr*lanes: four products of 16x16 sums by 32
	return &k
}

func fmaAMX(turns int) {
	t := tile{rows: amxRows, kc: amxStep}
	t.configure()
	peakAMX(turns, &t.amx.config[0])
}

// configure sets the sizes of tile registers: four sums, A and B of whole steps, A and B of the
// rest. Nothing outside the operands is read, so neither has padding.
func (t *tile) configure() {
	x, half := &t.amx, t.rows
	x.second = 0
	if half > amxRows/2 {
		half = (half + 1) / 2
		x.second = t.rows - half
	}
	x.steps, x.rest = t.kc/amxStep, t.kc%amxStep
	x.config = [64]byte{0: 1} // palette
	for i := range 5 {
		x.size(i, half, amxStep)
	}
	x.size(5, amxStep, 16)
	if x.rest > 0 {
		x.size(6, half, x.rest)
		x.size(7, x.rest, 16)
	}
}

// size sets the rows, and the floats or pairs of a row, of tile register i.
func (x *amxTile) size(i, rows, columns int) {
	x.config[16+2*i], x.config[48+i] = byte(4*columns), byte(rows)
}

// verify compares a product of each kind of tiles with sums in float64: one and two halves of rows
// and columns, whole steps and the rest of the pairs, two blocks, A transposed. The bound is that
// of float32 sums of kk terms.
func (k *Kernels) verify() error {
	r := rand.New(rand.NewPCG(1, 1))
	values := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = fromBrain(toNormalBrain(float32(r.NormFloat64())))
		}
		return x
	}
	var s Scratch
	for i, shape := range [][3]int{{1, 1, 1}, {16, 16, 32}, {9, 33, 31}, {33, 70, 70}, {32, 7, 600}} {
		m, n, kk := shape[0], shape[1], shape[2]
		a, b, c := values(m*kk), values(kk*n), values(m*n)
		transA, lda, ars, acs := i%2 == 1, kk, kk, 1
		if transA {
			lda, ars, acs = m, 1, m
		}
		sums := slices.Clone(c)
		k.Gemm(&s, transA, false, m, n, kk, a, lda, b, n, true, sums, n)
		for j, got := range sums {
			want, size := float64(c[j]), math.Abs(float64(c[j]))
			for p := range kk {
				v := float64(a[j/n*ars+p*acs]) * float64(b[p*n+j%n])
				want, size = want+v, size+math.Abs(v)
			}
			if limit := size * float64(kk+2) * 0x1p-24; !(math.Abs(float64(got)-want) <= limit) {
				return fmt.Errorf("a product of %dx%d by %dx%d has %v at %d,%d: want %v, within %v", m, kk, kk, n, got, j/n, j%n, want, limit)
			}
		}
	}
	return nil
}
