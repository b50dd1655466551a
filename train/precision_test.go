package train

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// TestPrecision checks that bf16 has the same bits in every run, for any number of threads and
// after a resume, that auto keeps it, and that a run can resume in fp32 or after a run on another
// kind of processor, which it reports.
func TestPrecision(t *testing.T) {
	cfg := small()
	cfg.TrainLimit, cfg.Epochs, cfg.Precision = 192, 2, bf16
	k, err := simd.BF16()
	if err != nil {
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
	const differ = ": the bits differ from an uninterrupted run"
	other := map[string]string{"amx-bf16": "avx512-bf16", "avx512-bf16": "amx-bf16"}[k.Name()]
	moved := func(c *Config) {
		resumed(c)
		replaceKernels(t, filepath.Join(c.Checkpoint.Dir, filepath.Base(file)), k.Name(), other)
	}
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
			"training.precision fp32 instead of bf16; " + simd.Host().Name() + " kernels instead of " + k.Name() + differ},
		"on another kind": {moved, true, k.Name() + " kernels instead of " + other + differ}, // tested on one kind
		"on another kind with auto": {func(c *Config) { moved(c); c.Precision = auto }, true,
			"training.precision auto instead of bf16; " + k.Name() + " kernels instead of " + other + differ},
	} {
		if sum, changed := run(c.edit); (sum == first.ParamsSHA256) != c.same || changed != c.changed {
			t.Errorf("%s: sha256 %s, of the first run %s; changed %q, want %q", name, sum, first.ParamsSHA256, changed, c.changed)
		}
	}
}

// replaceKernels replaces the kind of kernels in a checkpoint.
func replaceKernels(t *testing.T, file, from, to string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	end := 16 + binary.LittleEndian.Uint32(content[12:])
	header := strings.Replace(string(content[16:end]), `"`+from+`"`, `"`+to+`"`, 1)
	changed := binary.LittleEndian.AppendUint32(content[:12:12], uint32(len(header)))
	changed = append(changed, header...)
	changed = binary.LittleEndian.AppendUint32(changed, crc32.Checksum(changed, crc32.MakeTable(crc32.Castagnoli)))
	if err := os.WriteFile(file, append(changed, content[end+4:]...), 0o600); err != nil {
		t.Fatal(err)
	}
}
