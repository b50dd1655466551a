package kernels

import (
	"math"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cli/commandtest"
	"github.com/ringo-ml/ringo/internal/simd"
)

const gemmFields = "bench m n k trans_a trans_b threads kernels median_us min_us gflop_s peak_gflop_s share_of_peak iterations"

func TestBenchGemm(t *testing.T) {
	status, out, errs := commandtest.Run(Gemm(), "--n 33,64 --m 50 --trans-a --threads 2 --time 1ms --json -")
	if status != 0 || strings.Count(errs, " GFLOP/s ") != 2 {
		t.Fatalf("status %d, stderr %s", status, errs)
	}
	for i, got := range commandtest.JSON(t, out, gemmFields, gemmFields) {
		n := []float64{33, 64}[i]
		for name, want := range map[string]any{
			"bench": "gemm", "m": 50., "n": n, "k": n, "trans_a": true, "trans_b": false, "threads": 2., "kernels": simd.Host().Name(),
		} {
			if got[name] != want {
				t.Errorf("%s is %v, want %v", name, got[name], want)
			}
		}
		median, least := got["median_us"].(float64), got["min_us"].(float64)
		if want := 2 * 50 * n * n / median / 1e3; least <= 0 || median < least || math.Abs(got["gflop_s"].(float64)-want) > 1e-9*want {
			t.Errorf("times and rates do not fit together: %v", got)
		}
	}
}

func TestBenchGemmRefuses(t *testing.T) {
	status, _, errs := commandtest.Run(Gemm(), "--n 0 --m -1 --k 99999 --threads -1 --time 0 --kernels mmx")
	for _, want := range []string{"--n 0: want 1 to 32768", "--m -1", "--k 99999", "--threads -1", "--time 0s", `"mmx"`} {
		if status != cli.UsageError || !strings.Contains(errs, want) {
			t.Errorf("status %d, no %q in %s", status, want, errs)
		}
	}
}

// However C is cut, each element is the same.
func TestGemmParts(t *testing.T) {
	for _, side := range []string{"rows", "columns"} {
		c := gemm{m: 70, k: 20, threads: 1, transA: true, transB: side == "rows"}
		n := map[string]int{"rows": 40, "columns": 100}[side]
		one := c.product(simd.Host(), n)
		one.each(one.part)
		c.threads = 3
		three := c.product(simd.Host(), n)
		three.each(three.part)
		for i := range one.c {
			if math.Float32bits(one.c[i]) != math.Float32bits(three.c[i]) || one.c[i] == 0 {
				t.Fatalf("%s: element %d is %v with three threads, %v with one", side, i, three.c[i], one.c[i])
			}
		}
	}
}
