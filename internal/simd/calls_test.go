package simd

import "testing"

// calls notes the most work that one assembly call was given, per kernel.
type calls map[string]int

func (c calls) note(kernel string, work int) { c[kernel] = max(c[kernel], work) }

// counted is k with kernels that note their work.
func counted(k *Kernels, c calls) *Kernels {
	out := *k
	v, g := &out.vec, &out.gemm
	add, relu, sum := v.add, v.relu, v.sum
	v.add = func(dst, src *float32, n int) { c.note("add", n); add(dst, src, n) }
	v.relu = func(dst, x *float32, n int) { c.note("relu", n); relu(dst, x, n) }
	v.sum = func(lanes *[16]float64, x *float32, n int) { c.note("sum", n); sum(lanes, x, n) }
	g.wide, g.narrow = countedTiles(g.wide, c), countedTiles(g.narrow, c)
	transpose := g.transpose8
	if transpose != nil {
		g.transpose8 = func(dst *float32, ldd int, src *float32, lds int, n int) {
			c.note("transpose8", 8*n)
			transpose(dst, ldd, src, lds, n)
		}
	}
	if whole := g.transpose16; whole != nil {
		g.transpose16 = func(dst *float32, src *float32, lds, n int) {
			c.note("transpose16", 16*n)
			whole(dst, src, lds, n)
		}
	}
	if tiles := g.copyTiles; tiles != nil {
		g.copyTiles = func(dst *float32, tileStep, ldd int, src *float32, lds, width, count, n int) {
			c.note("copyTiles", width*count*n)
			tiles(dst, tileStep, ldd, src, lds, width, count, n)
		}
	}
	if p := g.pair; p != nil {
		g.pair = &pairLevel{
			rows: func(dst *float32, ldd int, src *float32, lds, columns, n int) {
				c.note("pairs", columns*n)
				p.rows(dst, ldd, src, lds, columns, n)
			},
			between: func(dst *float32, ldd int, src *float32, lds, columns, width, n int) {
				c.note("pairs", 64*n)
				p.between(dst, ldd, src, lds, columns, width, n)
			},
			columns: func(dst *float32, src *float32, lds, n int) {
				c.note("pairs", 16*32*n)
				p.columns(dst, src, lds, n)
			},
		}
	}
	return &out
}

func countedTiles(tiles []func(*tile), c calls) []func(*tile) {
	if tiles == nil {
		return nil
	}
	out := make([]func(*tile), len(tiles))
	for rows, f := range tiles {
		if f != nil {
			out[rows] = func(t *tile) { c.note("gemm", rows*t.panels*t.tiles*t.kc); f(t) }
		}
	}
	return out
}

// Assembly cannot be preempted: however large the operands, one call does a
// bounded amount of work, some tens of microseconds. The bounds are counted
// here and not timed.
func TestCallsAreShort(t *testing.T) {
	limits := calls{
		"add": callFloats, "relu": callFloats, "sum": callFloats,
		"gemm": callSteps, "transpose8": kcMax, "transpose16": kcMax, "copyTiles": callFloats,
	}
	for _, level := range Levels() {
		if level.vec.width == 0 {
			continue // Go code can be preempted anywhere
		}
		most := calls{}
		runLarge(counted(level, most))
		for kernel, limit := range limits {
			if most[kernel] > limit {
				t.Errorf("%s: one call of %s was given %d, the limit is %d", level.Name(), kernel, most[kernel], limit)
			}
		}
		for _, kernel := range []string{"add", "relu", "sum", "gemm", "copyTiles"} {
			if most[kernel] < limits[kernel]/2 {
				t.Errorf("%s: %s was given at most %d, so its limit of %d was not tried", level.Name(), kernel, most[kernel], limits[kernel])
			}
		}
	}
}

// runLarge calls each kernel with operands beyond its limit.
func runLarge(k *Kernels) {
	const n = 3*callFloats + 5
	x, y := make([]float32, n), make([]float32, n)
	k.Add(x, y)
	k.ReLU(x, y)
	k.Sum(x)
	var s Scratch
	const rows, cols, depth = 600, 900, 2000
	a, b, c := make([]float32, rows*depth), make([]float32, depth*cols), make([]float32, rows*cols)
	k.Gemm(&s, false, false, rows, cols, depth, a, depth, b, cols, false, c, cols)
	k.Gemm(&s, false, true, rows, cols, depth, a, depth, b, depth, false, c, cols)
	k.Gemm(&s, true, false, rows, cols, depth, a, rows, b, cols, false, c, cols)
	var packed PackedB
	k.PackB(&packed, true, depth, cols, b, depth)
}
