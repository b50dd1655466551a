package simd

import "testing"

// A scratch that matches another does what that did without allocating.
func TestScratchMatch(t *testing.T) {
	const n = 70
	x, c := make([]float32, n*n), make([]float32, n*n)
	rows := &rowsOf{x, n}
	for _, k := range Levels() {
		work := func(s *Scratch) {
			k.Gemm(s, true, true, n, n, n, x, n, x, n, false, c, n)
			k.GemmRowsT(s, n, n, n, rows, x, n, false, c, n)
		}
		var has Scratch
		work(&has)
		var fresh [2]Scratch // AllocsPerRun runs once more, first
		for i := range fresh {
			fresh[i].Match(&has)
		}
		at := 0
		if a := testing.AllocsPerRun(1, func() { work(&fresh[at]); at++ }); a != 0 {
			t.Errorf("%s: %v allocations after Match", k.Name(), a)
		}
		was := &fresh[0].a[:1][0]
		if fresh[0].Match(&has); was != &fresh[0].a[:1][0] {
			t.Errorf("%s: Match made new what was large enough", k.Name())
		}
	}
}
