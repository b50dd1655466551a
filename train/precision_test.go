package train

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// TestPrecision checks that bf16 has the same bits in every run, for any number of threads and
// after a resume, that auto keeps it, and that a run can resume in fp32, which it reports.
func TestPrecision(t *testing.T) {
	cfg := small()
	cfg.TrainLimit, cfg.Epochs, cfg.Precision = 192, 2, bf16
	if _, err := simd.BF16(); err != nil {
		t.Skip(err)
	}
	cfg.Checkpoint = Checkpoint{Dir: t.TempDir(), Every: 4, Keep: 1000}
	first, rec := onRanks(t, 2, cfg)
	if !slices.ContainsFunc(rec.info.Parameters, func(line string) bool { return strings.HasPrefix(line, "precision bf16: ") }) {
		t.Errorf("notes %q, want the precision", rec.info.Parameters)
	}
	file := filepath.Join(cfg.Checkpoint.Dir, "step-000000004.ringo")
	run := func(edit func(*Config)) (sum, changed string) {
		again := cfg
		again.Checkpoint = Checkpoint{}
		edit(&again)
		got, rec := onRanks(t, 2, again)
		return got.ParamsSHA256, strings.Join(rec.info.Changed, "; ")
	}
	resumed := func(c *Config) { c.Checkpoint = Checkpoint{Dir: onlyFile(t, file), Every: 4, Resume: true} }
	for name, c := range map[string]struct {
		edit    func(*Config)
		same    bool
		changed string
	}{
		"again":             {func(*Config) {}, true, ""},
		"threads":           {func(c *Config) { c.Threads = 2 }, true, ""},
		"resumed":           {resumed, true, ""},
		"fp32":              {func(c *Config) { c.Precision = fp32 }, false, ""},
		"resumed with auto": {func(c *Config) { resumed(c); c.Precision = auto }, true, "training.precision auto instead of bf16"},
		"resumed in fp32": {func(c *Config) { resumed(c); c.Precision = fp32 }, false,
			"training.precision fp32 instead of bf16; avx512 kernels instead of avx512-bf16: the bits differ from an uninterrupted run"},
	} {
		if sum, changed := run(c.edit); (sum == first.ParamsSHA256) != c.same || changed != c.changed {
			t.Errorf("%s: sha256 %s, of the first run %s; changed %q, want %q", name, sum, first.ParamsSHA256, changed, c.changed)
		}
	}
}
