package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
)

// rowsOf delivers a matrix in memory, and scribbles between its rows.
type rowsOf struct {
	data []float32
	ld   int
}

func (r *rowsOf) PackRows(dst []float32, ld, i0, rows, k0, kc int) {
	for i := range rows {
		row := dst[i*ld:][:ld]
		n := copy(row[:kc], r.data[(i0+i)*r.ld+k0:])
		for j := range row[n:] {
			row[n+j] = float32(math.NaN())
		}
	}
}

// otherWays runs one product in every way there is besides Gemm.
func otherWays(k *Kernels, s *Scratch, m, n, kk int, a, b []float32, accumulate bool, e Epilogue) map[string]func(c []float32) {
	at, bt := transposed(a, m, kk), transposed(b, kk, n)
	ways := map[string]func(c []float32){}
	for _, trans := range []bool{false, true} {
		src, ldb := b, n
		if trans {
			src, ldb = bt, kk
		}
		var packed PackedB
		k.PackB(&packed, trans, kk, n, src, ldb)
		ways[fmt.Sprint("With ", trans)] = func(c []float32) {
			k.GemmWith(s, false, m, n, kk, a, kk, &packed, accumulate, c, n, e)
		}
		ways[fmt.Sprint("With, A transposed ", trans)] = func(c []float32) {
			k.GemmWith(s, true, m, n, kk, at, m, &packed, accumulate, c, n, e)
		}
		ways[fmt.Sprint("Rows ", trans)] = func(c []float32) {
			k.GemmRows(s, m, n, kk, &rowsOf{a, kk}, &packed, accumulate, c, n, e)
		}
		ways[fmt.Sprint("transposed ", trans)] = func(c []float32) {
			k.GemmEpilogue(s, true, trans, m, n, kk, at, m, src, ldb, accumulate, c, n, e)
		}
	}
	if e.RowBias == nil && e.ColBias == nil && !e.ReLU {
		ways["RowsT"] = func(c []float32) {
			k.GemmRowsT(s, m, n, kk, &rowsOf{at, m}, b, n, accumulate, c, n)
		}
	}
	return ways
}

func transposed(a []float32, rows, cols int) []float32 {
	t := make([]float32, rows*cols)
	for i := range rows {
		for j := range cols {
			t[j*rows+i] = a[i*cols+j]
		}
	}
	return t
}

// Packed or not, transposed or not, in memory or delivered: the same bits.
func TestGemmWaysSameBits(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) { waysSameBits(t, k, 1<<30) })
}

// waysSameBits compares the ways for shapes of at most "most" products.
func waysSameBits(t *testing.T, k *Kernels, most int) {
	r := rand.New(rand.NewPCG(7, 8))
	var s Scratch
	for i, shape := range [][3]int{{1, 1, 1}, {5, 9, 3}, {0, 4, 3}, {3, 4, 0}, {30, 33, 70}, {14, 130, 40}, {77, 64, 530}, {300, 40, 1100}, {17, 700, 600}, {17, 90, 2601}} {
		m, n, kk := shape[0], shape[1], shape[2]
		if m*n*kk > most {
			continue
		}
		a, b, start := random(r, m*kk), random(r, kk*n), random(r, m*n)
		for _, full := range []bool{false, true} {
			var e Epilogue
			if full {
				e = Epilogue{random(r, m), random(r, n), true}
			}
			accumulate := full == (i%2 == 0)
			want := append([]float32(nil), start...)
			k.GemmEpilogue(&s, false, false, m, n, kk, a, kk, b, n, accumulate, want, n, e)
			for name, way := range otherWays(k, &s, m, n, kk, a, b, accumulate, e) {
				got := append([]float32(nil), start...)
				way(got)
				equalBits(t, fmt.Sprintf("%s %v full %v", name, shape, full), got, want)
			}
		}
	}
}

// The layout is as documented, whatever was in the memory before.
func TestPackedLayout(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(9, 10))
		var p PackedB
		for _, shape := range [][2]int{{40, 100}, {0, 5}, {7, 33}, {19, 64}, {3, 1}} {
			kk, n := shape[0], shape[1]
			b := random(r, kk*n)
			data, width := k.Panels(&p, kk, n)
			for i := range data {
				data[i] = float32(math.NaN())
			}
			want := make([]float32, (n+width-1)/width*kk*width)
			for i := range kk {
				for j := range n {
					want[(j/width*kk+i)*width+j%width] = b[i*n+j]
				}
			}
			k.PackB(&p, false, kk, n, b, n)
			equalBits(t, fmt.Sprint("rows ", shape), p.data, want)
			for i := range data {
				data[i] = float32(math.NaN())
			}
			k.PackB(&p, true, kk, n, transposed(b, kk, n), kk)
			equalBits(t, fmt.Sprint("columns ", shape), p.data, want)
			if gk, gn := p.Size(); gk != kk || gn != n {
				t.Errorf("size %dx%d, want %dx%d", gk, gn, kk, n)
			}
		}
	})
}

func TestPackedSharedByGoroutines(t *testing.T) {
	const m, n, kk = 20, 90, 50
	r := rand.New(rand.NewPCG(11, 12))
	a, b, want := random(r, m*kk), random(r, kk*n), make([]float32, m*n)
	var s Scratch
	k := Host()
	k.Gemm(&s, false, false, m, n, kk, a, kk, b, n, false, want, n)
	var p PackedB
	k.PackB(&p, false, kk, n, b, n)
	var out [4][]float32
	var wg sync.WaitGroup
	for i := range out {
		out[i] = make([]float32, m*n)
		wg.Go(func() {
			var s Scratch
			for range 10 {
				k.GemmWith(&s, false, m, n, kk, a, kk, &p, false, out[i], n, Epilogue{})
			}
		})
	}
	wg.Wait()
	for _, c := range out {
		equalBits(t, "shared", c, want)
	}
}

func TestPackedChecks(t *testing.T) {
	var s Scratch
	var p PackedB
	x := make([]float32, 64)
	Host().PackB(&p, false, 8, 8, x, 8)
	for name, f := range map[string]func(){
		"short B":     func() { Host().PackB(&p, true, 8, 9, x, 8) },
		"other size":  func() { Host().GemmWith(&s, false, 8, 8, 7, x, 8, &p, false, x, 8, Epilogue{}) },
		"other level": func() { portable.GemmWith(&s, false, 8, 8, 8, x, 8, &p, false, x, 8, Epilogue{}) },
		"bf16": func() {
			k, err := BF16()
			if err != nil {
				panic(err)
			}
			k.GemmWith(&s, false, 8, 8, 8, x, 8, &p, false, x, 8, Epilogue{})
		},
		"never packed": func() {
			Host().GemmRows(&s, 8, 8, 8, &rowsOf{x, 8}, &PackedB{}, false, x, 8, Epilogue{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "other level" && Host() == portable {
				t.Skip("one level only")
			}
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

func TestPackedAllocatesNothing(t *testing.T) {
	const n = 100
	var s Scratch
	var p PackedB
	x, c := make([]float32, n*n), make([]float32, n*n)
	rows := &rowsOf{x, n}
	for _, k := range Levels() {
		p = PackedB{}
		if allocs := testing.AllocsPerRun(3, func() {
			k.PackB(&p, true, n, n, x, n)
			k.GemmWith(&s, true, n, n, n, x, n, &p, false, c, n, Epilogue{})
			k.GemmRows(&s, n, n, n, rows, &p, false, c, n, Epilogue{})
			k.GemmRowsT(&s, n, n, n, rows, x, n, false, c, n)
		}); allocs > 0 {
			t.Errorf("%s: %v allocations", k.Name(), allocs)
		}
	}
}

// Blocks of a sum, computed apart and added in order, have the bits of one product.
func TestBlocksAddUp(t *testing.T) { eachLevel(t, blocksAddUp) }

func blocksAddUp(t *testing.T, k *Kernels) {
	for _, kk := range []int{1, 511, 512, 513, 1024, 1025, 1700, 2049} {
		const m, n = 15, 35
		r := rand.New(rand.NewPCG(uint64(kk), 1))
		a, b := normal(r, kk*m), normal(r, kk*n)
		var s Scratch
		want, got, block := normal(rand.New(rand.NewPCG(1, 1)), m*n), normal(rand.New(rand.NewPCG(1, 1)), m*n), make([]float32, m*n)
		k.Gemm(&s, true, false, m, n, kk, a, m, b, n, true, want, n)
		at := 0
		for i := range k.Blocks(kk) {
			lo, hi := k.Block(kk, i)
			if lo != at || hi <= lo {
				t.Fatalf("block %d of %d products is %d to %d, after %d", i, kk, lo, hi, at)
			}
			at = hi
			k.Gemm(&s, true, false, m, n, hi-lo, a[lo*m:], m, b[lo*n:], n, false, block, n)
			k.Add(got, block)
		}
		if at != kk {
			t.Errorf("the blocks of %d products end at %d", kk, at)
		}
		equalBits(t, fmt.Sprintf("blocks of %d products", kk), got, want)
	}
}

func normal(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}
