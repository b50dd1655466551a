package codecs

import (
	"math"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/cli/commandtest"
	"github.com/ringo-ml/ringo/internal/simd"
)

// A threshold of two entries lets through none every few steps. Where that leaves nothing
// to measure, which depends on how fast the machine is, it is told, and no fault.
func TestBenchCodecOfFewEntries(t *testing.T) {
	status, out, errs := commandtest.Run(Command(), "--time 1ms --values 1024 --ratio 0.001 --only dlgs,payload/encode --data normal")
	if status != 0 || errs != "" || !strings.Contains(out, "\ndlgs       reuse") || !strings.Contains(out, "\npayload    encode") {
		t.Errorf("exit %d\n%s%s", status, out, errs)
	}
}

// Every stage of every codec has a line, whose figures fit each other.
func TestBenchCodec(t *testing.T) {
	status, out, errs := commandtest.Run(Command(), "--time 1ms --values 1000,5000 --ratio 0.02 --data heavy --arena 15000 --json -")
	if status != 0 {
		t.Fatalf("status %d, stderr %s", status, errs)
	}
	const all = "bench codec stage data values arena density median_us gb_s stream_us stream_gb_s streams kernels iterations"
	var fields []string
	for line := range strings.Lines(out) {
		f := all
		if strings.Contains(line, `"ratio"`) {
			f += " ratio"
		}
		if strings.Contains(line, `"bytes_per_entry"`) {
			f += " bytes_per_entry"
		}
		fields = append(fields, f)
	}
	seen := map[string]int{}
	for _, r := range commandtest.JSON(t, out, fields...) {
		seen[r["codec"].(string)+"/"+r["stage"].(string)]++
		n, us := r["values"].(float64), r["median_us"].(float64)
		if r["bench"] != "codec" || r["arena"].(float64) != 15000 || r["data"] != "heavy" || r["kernels"] != simd.Host().Name() || !(us > 0) || r["iterations"].(float64) < 3 {
			t.Errorf("%v", r)
		}
		if got, want := r["stream_gb_s"].(float64), 12*n/r["stream_us"].(float64)/1e3; math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%v: a pass of %v GB/s, want %v", r, got, want)
		}
		density, each := r["density"].(float64), r["bytes_per_entry"]
		if sparse := r["ratio"] != nil; sparse && (density < 0.02/4 || density > 0.02*4) || !sparse && density != 1 {
			t.Errorf("%v: density %v", r, density)
		}
		if r["codec"] == "payload" && !(each.(float64) > 4 && each.(float64) < 8) || r["codec"] == "bf16" && math.Abs(each.(float64)-2) > 0.1 {
			t.Errorf("%v: %v bytes an entry", r, each)
		}
	}
	for _, name := range stageNames() {
		if seen[name] != 2 {
			t.Errorf("%s has %d lines, want 2", name, seen[name])
		}
	}
	if len(seen) != len(stageNames()) || strings.Count(errs, "\n") != len(fields)+1 {
		t.Errorf("%v; stderr %s", seen, errs)
	}
}
