package kernels

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/cli/commandtest"
	"github.com/ringo-ml/ringo/internal/simd"
)

// Each kernel has a rate and its limit, which fit together.
func TestBenchKernels(t *testing.T) {
	level := simd.Host().Name()
	status, out, errs := commandtest.Run(Command(), "--only conv,sgd,look-up --time 1ms --json - --kernels "+level)
	if status != 0 {
		t.Fatalf("status %d, stderr %s", status, errs)
	}
	const shared = "bench kernel shape kernels median_us limit share_of_limit iterations "
	var fields []string
	for line := range strings.Lines(out) {
		if strings.Contains(line, `"fma"`) {
			fields = append(fields, shared+"gflop_s limit_gflop_s")
		} else {
			fields = append(fields, shared+"gb_s limit_gb_s")
		}
	}
	if len(fields) < 8 || strings.Count(errs, "\n") != len(fields) {
		t.Fatalf("%d kernels, stderr %s", len(fields), errs)
	}
	for _, r := range commandtest.JSON(t, out, fields...) {
		rate, limit := r["gflop_s"], r["limit_gflop_s"]
		if r["limit"] == "memory" {
			rate, limit = r["gb_s"], r["limit_gb_s"]
		}
		share := rate.(float64) / limit.(float64)
		if r["bench"] != "kernels" || r["kernels"] != level || r["iterations"].(float64) < 3 || math.Abs(share-r["share_of_limit"].(float64)) > 1e-9*share {
			t.Errorf("%v", r)
		}
	}
}

// A name that several shapes have is told once.
func TestKernelNames(t *testing.T) {
	_, _, errs := commandtest.Run(Command(), "--only fft")
	_, list, _ := strings.Cut(strings.TrimSpace(errs), "there are ")
	names := strings.Split(list, ", ")
	if slices.Sort(names); len(names) < 8 || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("names %q", names)
	}
}

// The rates are those of what a kernel computes and moves.
func TestKernelRates(t *testing.T) {
	for _, c := range []struct {
		k     kernel
		limit float64
		want  result
	}{
		{kernel{flops: 2e9}, 4, result{Limit: "fma", GFlops: 2, LimitGFlops: 4, Share: 0.5}},
		{kernel{flops: 2e9}, 0, result{Limit: "fma", GFlops: 2}},
		{kernel{bytes: 3e9}, 12, result{Limit: "memory", GBPerS: 3, LimitGBPerS: 12, Share: 0.25}},
	} {
		c.want.Bench, c.want.MedianUS, c.want.Iterations = "kernels", 1e6, 3
		if got := c.k.result("", []float64{0.5, 1, 7}, c.limit); got != c.want {
			t.Errorf("%+v, want %+v", got, c.want)
		}
	}
}
