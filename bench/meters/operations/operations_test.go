package operations

import (
	"math"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/cli/commandtest"
)

const fields = "bench model batch threads of alone_us beside_us shared_us serial_us speedup of_linear rounds "

// A step's operations are told one by one, then by kind, then all; kinds are the sums of their operations.
func TestBenchOperations(t *testing.T) {
	for _, flags := range []string{"mlp --batch 4 --threads 1 --rounds 2", "mlp --batch 4 --threads 1 --rounds 2 --eval"} {
		status, out, errs := commandtest.Run(Command(), flags+" --json -")
		if status != 0 {
			t.Fatalf("%s: status %d, stderr %s", flags, status, errs)
		}
		var names []string
		for line := range strings.Lines(out) {
			of := fields
			if !strings.Contains(line, `"of":"all"`) {
				of += "op pass"
			}
			if strings.Contains(line, `"of":"operation"`) {
				of += " output"
			}
			if strings.Contains(line, `"layer"`) {
				of += " layer"
			}
			names = append(names, of)
		}
		sums, kinds, whole := map[string]float64{}, map[string]float64{}, 0.0
		for _, r := range commandtest.JSON(t, out, names...) {
			alone, beside, shared := r["alone_us"].(float64), r["beside_us"].(float64), r["shared_us"].(float64)
			if r["bench"] != "operations" || r["model"] != "mlp" || r["batch"] != 4.0 || r["threads"] != 1.0 || r["rounds"] != 2.0 ||
				!near(r["speedup"].(float64), alone/shared) || !near(r["of_linear"].(float64), beside/shared) {
				t.Errorf("%v", r)
			}
			switch r["of"] {
			case "operation":
				sums[r["op"].(string)+r["pass"].(string)] += alone
			case "kind":
				kinds[r["op"].(string)+r["pass"].(string)] = alone
			default:
				whole = alone
			}
		}
		if len(kinds) != len(sums) || len(kinds) == 0 || whole == 0 {
			t.Errorf("%s: kinds %v, want sums of %v; all %v", flags, kinds, sums, whole)
		}
		for kind, sum := range sums {
			if !near(kinds[kind], sum) {
				t.Errorf("%s: %s takes %v us, its operations %v", flags, kind, kinds[kind], sum)
			}
		}
		if backward := strings.Contains(out, `"pass":"weights"`); backward == strings.Contains(flags, "--eval") {
			t.Errorf("%s: gradients are timed: %v", flags, backward)
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Abs(b) }

func TestBenchOperationsRefuses(t *testing.T) {
	for _, flags := range []string{"mlp --threads 100000", "mlp --rounds 0", "mlp --batch -1", "nomodel", ""} {
		if status, _, errs := commandtest.Run(Command(), flags); status != 2 || errs == "" {
			t.Errorf("%q: status %d, stderr %q", flags, status, errs)
		}
	}
}

// A word goes to and fro in some time, whatever the cores.
func TestHandover(t *testing.T) {
	if us := handover(10); us <= 0 {
		t.Errorf("%v us", us)
	}
}

// Linear is what copies get done that share nothing, speedup what one thread alone does.
func TestTimes(t *testing.T) {
	var s samples
	s.us[alone], s.us[beside], s.us[shared] = []float64{90, 100, 130}, []float64{120, 110, 500}, []float64{75, 90, 50}
	s.serial = []float64{9, 7, 8}
	got := s.median(2)
	if want := (times{AloneUS: 100, BesideUS: 120, SharedUS: 75, SerialUS: 8, Speedup: 100.0 / 75, OfLinear: 0.8}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	kinds := addKind(nil, result{Op: "dense", Pass: "input", times: got})
	kinds = addKind(kinds, result{Op: "dense", Pass: "forward", times: got})
	kinds = addKind(kinds, result{Op: "dense", Pass: "input", Layer: "b", times: got})
	if len(kinds) != 2 || kinds[0].AloneUS != 200 || kinds[0].SerialUS != 16 || kinds[0].SharedUS != 150 || kinds[0].BesideUS != 240 || kinds[1].AloneUS != 100 {
		t.Errorf("%+v", kinds)
	}
	for _, r := range append(kinds, result{Of: "all", times: got}) {
		r.rate(2)
		if line := r.line(); !near(r.OfLinear, 0.8) || !strings.Contains(line, "0.80") || !strings.Contains(line, "1.33") {
			t.Errorf("%q", line)
		}
	}
}
