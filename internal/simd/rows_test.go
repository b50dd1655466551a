package simd

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestRowsAgainstTwins(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, k := range Levels() {
		for _, rows := range []int{0, 1, 3, 700} {
			for _, cols := range []int{0, 1, 7, 8, 15, 16, 17, 50, 64, 83, 144} {
				lds, ldd := cols+rows%5, max(1, cols/3) // rows of AddToRows overlap
				last := max(0, rows-1)                  // where its row ends, so does the memory
				src, dst := fenced(random(r, last*lds+cols)), random(r, last*(cols+2)+cols)
				name := k.Name()
				want, got := slices.Clone(dst), fenced(dst)
				for i := range rows {
					copy(want[i*(cols+2):][:cols], src[i*lds:])
				}
				k.CopyRows(got, cols+2, src, lds, rows, cols)
				if !slices.Equal(got, want) {
					t.Fatalf("%s: CopyRows of %d rows of %d differs from its twin", name, rows, cols)
				}
				want, got = slices.Clone(dst), fenced(dst)
				for i := range rows {
					for j := range cols {
						want[i*ldd+j] += src[i*lds+j]
					}
				}
				k.AddToRows(got, ldd, src, lds, rows, cols)
				if !slices.Equal(got, want) {
					t.Fatalf("%s: AddToRows of %d rows of %d differs from its twin", name, rows, cols)
				}
				want, got = slices.Clone(dst[:cols]), fenced(dst[:cols])
				for i := range rows {
					for j := range cols {
						want[j] += src[i*lds+j]
					}
				}
				k.SumRows(got, src, lds, rows)
				if !slices.Equal(got, want) {
					t.Fatalf("%s: SumRows of %d rows of %d differs from its twin", name, rows, cols)
				}
			}
		}
	}
}

// Rows of several lines are cut by all that a call moves.
func TestRowCallsAreShort(t *testing.T) {
	for _, level := range Levels() {
		if level.rows.width == 0 {
			continue // Go code can be preempted anywhere
		}
		k, most := *level, 0
		note := func(rows, vectors, lines int) { most = max(most, rows*lines*(vectors+1)*k.rows.width) }
		copyRows, add := k.rows.copy, k.rows.add
		k.rows.copy = func(dst *float32, ldd int, src *float32, lds, rows, vectors int, mask *int32, lines, dstLine, srcLine int) {
			note(rows, vectors, lines)
			copyRows(dst, ldd, src, lds, rows, vectors, mask, lines, dstLine, srcLine)
		}
		k.rows.add = func(dst *float32, ldd int, src *float32, lds, rows, vectors int, mask *int32, lines, dstLine, srcLine int) {
			note(rows, vectors, lines)
			add(dst, ldd, src, lds, rows, vectors, mask, lines, dstLine, srcLine)
		}
		p := Windows{Height: 3, Width: 300, Channels: 64, KernelHeight: 3, KernelWidth: 3}
		image, matrix := make([]float32, p.ImageSize()), make([]float32, p.Rows()*p.Cols())
		(&WindowRows{p, &k, image, 0}).PackRows(matrix, p.Cols(), 0, p.Rows(), 0, p.Cols())
		k.AddWindows(image, p, matrix, p.Cols(), 0, p.Rows())
		if most > 3*callFloats || most < callFloats {
			t.Errorf("%s: one call moved %d floats, want about %d", k.Name(), most, 2*callFloats)
		}
	}
}
