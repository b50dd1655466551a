package nn

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// A matrix that threads pack together gives the products of one that one thread packs: whole panels and parts of one, as it
// lies and transposed, small ones that are one thread's, and memory that held another.
func TestPackOnThreads(t *testing.T) {
	shapes := [][2]int{{1, 1}, {700, 33}, {64, 400}, {513, 96}, {300, 290}, {7, 31}, {2000, 20}, {128, 128}}
	levels := simd.Levels()
	if k, err := simd.BF16(); err == nil {
		levels = append(levels, k)
	}
	for _, k := range levels {
		for _, threads := range []int{1, 2, 3, 7} {
			tape := NewTape(TapeConfig{Kernels: k, Threads: threads})
			var packed simd.PackedB
			for _, s := range shapes {
				for _, trans := range []bool{false, true} {
					kk, n := s[0], s[1]
					b := random(rand.New(rand.NewPCG(1, uint64(kk))), kk*n)
					ldb := n
					if trans {
						ldb = kk
					}
					tape.pack(&packed, trans, kk, n, b, ldb)
					if gotK, gotN := packed.Size(); gotK != kk || gotN != n {
						t.Fatalf("%d x %d became %d x %d", kk, n, gotK, gotN)
					}
					checkPacked(t, k, &packed, trans, b, fmt.Sprintf("%s, %d threads, %d x %d, transposed %v", k.Name(), threads, kk, n, trans))
				}
			}
			tape.Close()
		}
	}
}

// checkPacked multiplies three rows with a packed matrix and with the one it was made of.
func checkPacked(t *testing.T, k *simd.Kernels, packed *simd.PackedB, trans bool, b []float32, what string) {
	t.Helper()
	kk, n := packed.Size()
	a := random(rand.New(rand.NewPCG(2, uint64(n))), 3*kk)
	got, want := make([]float32, 3*n), make([]float32, 3*n)
	ldb := n
	if trans {
		ldb = kk
	}
	k.GemmWith(new(simd.Scratch), false, 3, n, kk, a, kk, packed, false, got, n, simd.Epilogue{})
	k.Gemm(new(simd.Scratch), false, trans, 3, n, kk, a, kk, b, ldb, false, want, n)
	if i := firstDifference(got, want); i >= 0 {
		t.Errorf("%s: value %d is %v, want %v", what, i, got[i], want[i])
	}
}
