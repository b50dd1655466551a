package train

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// visits writes a table whose last column depends on the weekday and hour of a time, and returns
// its path.
func visits(t *testing.T, rows int) string {
	t.Helper()
	var b strings.Builder
	r := rand.New(rand.NewPCG(3, 4))
	b.WriteString("x,at,visitors\n")
	for range rows {
		at := time.Date(2023, 1, 1, r.IntN(20_000), r.IntN(60), 0, 0, time.UTC)
		weekend := (at.Weekday() + 6) % 7 / 5
		fmt.Fprintf(&b, "%.2f,%s,%.1f\n", r.Float64(), at.Format("2/1/2006 15:04"), 10*float64(at.Hour())+150*float64(weekend)+r.Float64())
	}
	path := filepath.Join(t.TempDir(), "visits.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestDatesAreLearned: a model learns from hour and weekday, a resumed run has the bits of one run,
// and an evaluation reads the dates by the checkpoint's format.
func TestDatesAreLearned(t *testing.T) {
	path, dir := visits(t, 1500), filepath.Join(t.TempDir(), "saved")
	cfg := Defaults(zoo("mlp"), path)
	cfg.Epochs, cfg.Batch, cfg.LR = 6, 16, 0.05
	whole, _ := onRanks(t, 2, cfg)
	cfg.Checkpoint.Dir, cfg.Epochs = dir, 3
	onRanks(t, 2, cfg)
	cfg.Epochs, cfg.Checkpoint.Resume = 6, true
	resumed, _ := onRanks(t, 2, cfg)
	if whole.ParamsSHA256 != resumed.ParamsSHA256 {
		t.Errorf("the resumed run has parameters %s, one run %s", resumed.ParamsSHA256, whole.ParamsSHA256)
	}
	if r2 := whole.Eval["r2"]; r2 < 0.8 {
		t.Errorf("R² is %v, want 0.8: is a part of the date missing?", r2)
	}
	undecided := filepath.Join(t.TempDir(), "new.csv")
	if err := os.WriteFile(undecided, []byte("visitors,x,at\n10,0.5,1/2/2023 01:00\n160,0.5,1/7/2023 01:00\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	e, _, err := evaluated(t, dir, undecided, "")
	if err != nil || e.Samples != 2 {
		t.Fatalf("%+v, %v", e, err)
	}
}
