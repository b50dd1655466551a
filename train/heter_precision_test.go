package train

import (
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/simd"
)

// TestHeterPrecisionAuto checks that ranks take the measurement of a heter-trainer, and that the run
// has the bits of the chosen precision. A heter-trainer without products of bfloat16 makes auto
// choose fp32.
func TestHeterPrecisionAuto(t *testing.T) {
	k, err := simd.BF16()
	if err != nil {
		t.Skip(err)
	}
	set, keys := keyedSet(t)
	cfg := keyedConfig(keys)
	cfg.Epochs, cfg.Heter, cfg.Precision = 1, Heter{Count: 2, Micros: 2}, auto
	for name, mode := range map[string]Servers{"bsp": {Consistency: "bsp"}, "threads": {Consistency: "ssp", Threads: 2}} {
		cfg := cfg
		cfg.Servers = mode
		got, rec := split(t, 2, cfg, set, nil)
		notes := strings.Join(rec.info.Parameters, "\n")
		if !strings.Contains(notes, "; a micro-batch of heter-trainer 0 took ") {
			t.Errorf("%s: notes %q, want the measurement", name, notes)
		}
		if mode.Threads > 1 {
			continue // the order of the threads' pushes differs each time
		}
		for _, p := range []string{fp32, bf16} {
			cfg.Precision = p
			want, _ := split(t, 2, cfg, set, nil)
			if chosen := p == bf16 == (rec.info.Kernels == k.Name()); (got.ParamsSHA256 == want.ParamsSHA256) != chosen {
				t.Errorf("%s: sha256 %s, with %s %s; chosen: %v", name, got.ParamsSHA256, p, want.ParamsSHA256, chosen)
			}
		}
	}
	single := func(i int, d heter.Device) heter.Device {
		if i == 1 {
			d = struct{ heter.Device }{d} // without a method Precision
		}
		return d
	}
	cfg.Servers.Consistency = "bsp"
	_, rec := splitOn(t, 1, cfg, set, nil, single)
	if notes := strings.Join(rec.info.Parameters, "\n"); !strings.Contains(notes, "precision auto: fp32; heter-trainer 1 has no products of bfloat16") {
		t.Errorf("notes %q, want fp32 because of heter-trainer 1", notes)
	}
}
