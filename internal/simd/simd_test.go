package simd

import (
	"math/rand/v2"
	"testing"
)

// eachLevel runs f once per level of this host.
func eachLevel(t *testing.T, f func(t *testing.T, k *Kernels)) {
	for _, k := range Levels() {
		t.Run(k.Name(), func(t *testing.T) { f(t, k) })
	}
}

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = r.Float32()*2 - 1
	}
	return x
}

func TestLevels(t *testing.T) {
	all := Levels()
	if Host() != all[0] || all[len(all)-1].Name() != "portable" {
		t.Errorf("levels %v, host %v", all, Host().Name())
	}
	for _, k := range all {
		if got, err := Lookup(k.Name()); got != k || err != nil {
			t.Errorf("Lookup(%q) = %v, %v", k.Name(), got, err)
		}
	}
	if _, err := Lookup("sse9"); err == nil {
		t.Error("an unknown level was found")
	}
}

// gemmNaive is the oracle: float64 sums, the textbook's three loops.
func gemmNaive(transA, transB bool, m, n, kk int, a []float32, lda int, b []float32, ldb int, accumulate bool, c []float32, ldc int) {
	for i := range m {
		for j := range n {
			var sum float64
			for l := range kk {
				av, bv := 0.0, 0.0
				if transA {
					av = float64(a[l*lda+i])
				} else {
					av = float64(a[i*lda+l])
				}
				if transB {
					bv = float64(b[j*ldb+l])
				} else {
					bv = float64(b[l*ldb+j])
				}
				sum += av * bv
			}
			if accumulate {
				sum += float64(c[i*ldc+j])
			}
			c[i*ldc+j] = float32(sum)
		}
	}
}
