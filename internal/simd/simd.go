// Package simd holds the float32 kernels of training: matrix multiply, the elementwise work of
// layers, collectives and optimizers, and pooling. Each kernel exists at several instruction-set
// levels with the same meaning; a [Kernels] value is the set of one level.
//
// Elementwise kernels give the same bits at every level and on every architecture: no fused
// multiply-add, a fixed order of summation. Matrix multiply gives the same bits for any division of
// rows and columns over calls; AVX-512 and AVX2 agree with each other, but the portable level
// rounds differently because it does not fuse.
//
// Assembly cannot be preempted. Long work is therefore cut into calls of some tens of microseconds,
// so that other goroutines get the processor.
package simd

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ringo-ml/ringo/internal/hugepage"
)

// Kernels is the set of kernels of one instruction-set level. It is immutable, and any number of
// goroutines may use it simultaneously.
type Kernels struct {
	name     string
	remark   string
	gemm     gemmLevel
	vec      vectorLevel
	seq      seqLevel
	winograd winogradLevel
	rows     rowsLevel
	opt      optimLevel
	act      activationLevel
	norm     normLevel
	layer    layerLevel
	window   windowLevel
	reduce   reduceLevel
	compress compressLevel
	half     halfLevel
}

// gemmLevel is a level's part of the matrix-multiply driver.
type gemmLevel struct {
	mr, nr  int           // the widest micro-tile: rows by columns
	wide    []func(*tile) // [rows], tiles of up to nr columns
	narrow  []func(*tile) // [rows], tiles of up to nr/2 columns; nil: none
	masked  bool          // kernels touch only the tile's columns, of B (unless packed) and of C
	chained bool          // kernels do several tiles a call, and pack B in the first
	pair    *pairLevel    // of products with bfloat16 operands; nil: float32
	// rowPairs reports whether kernels read A row by row only, and blocks are half as deep: AMX.
	rowPairs bool

	// fma does 4*mr fused multiply-adds of vectors per turn, on registers. nil: none.
	fma   func(turns int)
	lanes int // floats of a vector

	// transpose8 writes the transpose of 8 rows of 8*n floats: dst row j is
	// column j. Strides in floats. nil: none.
	transpose8 func(dst *float32, ldd int, src *float32, lds int, n int)
	// transpose16 writes the transpose of 16 rows of 16*n floats into a panel
	// of width nr: dst row j is column j. nil: none.
	transpose16 func(dst *float32, src *float32, lds, n int)
	// copyTiles copies, for each of n rows lds apart, tiles runs of width floats (at most mr),
	// adjacent in the row: run i of row j goes to dst[i*tileStep+j*ldd:]. nil: none.
	copyTiles func(dst *float32, tileStep, ldd int, src *float32, lds, width, tiles, n int)
}

// vectorLevel holds the elementwise kernels. Counts are multiples of width; the rest is portable.
// width 0: all is portable.
type vectorLevel struct {
	width      int
	add        func(dst, src *float32, n int)
	addTo      func(dst, a, b *float32, n int)
	scale      func(x *float32, n int, s float32)
	relu       func(dst, x *float32, n int)
	reluGrad   func(dx, dy, y *float32, n int)
	sum        func(lanes *[16]float64, x *float32, n int)
	sumSquares func(lanes *[16]float64, x *float32, n int)
}

var (
	portable = &Kernels{name: "portable", gemm: portableGemm}
	levels   = append(hostLevels(), portable) // never written after start
	bf16     = sync.OnceValue(hostBF16)       // nil: none
)

// Host returns the fastest kernels of this processor and system.
func Host() *Kernels { return levels[0] }

// Levels returns all kernels of this processor and system, best first. The last is always the
// portable level.
func Levels() []*Kernels { return append([]*Kernels(nil), levels...) }

// SameBits reports whether two kinds of kernels, by name, compute the same bits.
func SameBits(a, b string) bool {
	fused := []string{"avx512", "avx2"}
	return a == b || slices.Contains(fused, a) && slices.Contains(fused, b)
}

// IsBF16 reports whether kernels, by name, are a kind of [BF16].
func IsBF16(name string) bool { return strings.HasSuffix(name, "-bf16") }

// Lookup returns the level with this name, or an error that lists the names usable on this host.
func Lookup(name string) (*Kernels, error) {
	var names []string
	for _, k := range levels {
		if k.name == name {
			return k, nil
		}
		names = append(names, k.name)
	}
	return nil, fmt.Errorf("simd level %q cannot be used on this host; these can: %s", name, strings.Join(names, ", "))
}

// Name returns "avx512", "avx2" or "portable", and for [BF16] "amx-bf16" or "avx512-bf16".
func (k *Kernels) Name() string { return k.name }

// Remark is the reason why faster kernels for this processor are not used, or empty.
func (k *Kernels) Remark() string { return k.remark }

// Match makes the buffers at least as large as o's, so that equal work allocates no memory.
func (s *Scratch) Match(o *Scratch) {
	match(&s.a, o.a)
	match(&s.b, o.b)
	match(&s.r, o.r)
	match(&s.pairs, o.pairs)
}

func match(buf *[]float32, o []float32) {
	if cap(*buf) < cap(o) {
		*buf = make([]float32, cap(o))
		hugepage.Advise(*buf)
	}
}
