package train

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// TestHeterRepeats: equal runs have the same bits, for any numbers of ranks, heter-trainers and
// micro-batches, and so does a run that resumes. In bf16 a run can resume in fp32, too.
func TestHeterRepeats(t *testing.T) {
	set, keys := keyedSet(t)
	for _, c := range []struct {
		optimizer     string
		ranks, heters int
		precision     string
	}{
		{"adagrad", 1, 2, fp32}, {"adagrad", 2, 1, fp32}, {"adam", 2, 2, fp32}, {"adagrad", 2, 3, fp32}, {"adagrad", 4, 3, fp32},
		{"adagrad", 1, 1, bf16}, {"adam", 2, 2, bf16}, {"adagrad", 1, 3, bf16},
	} {
		if testing.Short() && c.ranks != 2 {
			continue // time
		}
		if _, err := simd.BF16(); err != nil && c.precision == bf16 {
			continue
		}
		what := fmt.Sprintf("%s, np %d, heter %d, %s", c.optimizer, c.ranks, c.heters, c.precision)
		every := 16 / c.ranks // three checkpoints, the first within an epoch
		cfg := keptConfig(t, keys, c.optimizer, every)
		cfg.Heter, cfg.Precision = Heter{Count: c.heters, Micros: 3}, c.precision
		want, whole := split(t, c.ranks, cfg, set, begun(t, cfg.Checkpoint.Dir, 1))
		clocks(whole.epochs)
		plain := cfg
		plain.Checkpoint, plain.Servers.Start = Checkpoint{}, 0
		got, rec := split(t, c.ranks, plain, set, nil)
		clocks(rec.epochs)
		checkSame(t, what, got, rec.epochs, want, whole.epochs)
		cfg.Checkpoint.Resume, cfg.Servers.Start = true, 2
		dropAfter(t, cfg.Checkpoint.Dir, every)
		got, rec = split(t, c.ranks, cfg, set, begun(t, cfg.Checkpoint.Dir, 2))
		clocks(rec.epochs)
		checkSame(t, what+", resumed", got, rec.epochs, want, whole.epochs)
		if c.precision == fp32 {
			continue
		}
		cfg.Precision, cfg.Servers.Start = fp32, 3
		dropAfter(t, cfg.Checkpoint.Dir, every)
		got, rec = split(t, c.ranks, cfg, set, begun(t, cfg.Checkpoint.Dir, 3))
		if changed := strings.Join(rec.info.Changed, "; "); got.ParamsSHA256 == want.ParamsSHA256 || !strings.Contains(changed, "training.precision fp32 instead of bf16") {
			t.Errorf("%s, resumed in fp32: the bits of bf16: %v, changed %q", what, got.ParamsSHA256 == want.ParamsSHA256, changed)
		}
	}
}
