package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tableOf writes a table of a linear target, and returns the path.
func tableOf(t *testing.T, rows int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("a,b,y\n")
	for i := range rows {
		a, c := float64(i%17)/17, float64(i%29)/29
		fmt.Fprintf(&b, "%.4f,%.4f,%.4f\n", a, c, 2*a-c)
	}
	path := filepath.Join(t.TempDir(), "t.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// The best trial's value is that of `ringo train` with its settings, and the page has a chart per
// setting; the same command again restores every trial, and a longer random search the first ones.
func TestTuneFindsWhatTrainRepeats(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, base := filepath.Join(dir, "search"), "mlp --epochs 2 --data "+tableOf(t, 600)
	line := "tune " + base + " --try lr=0.00001,0.01 --try training.batch=16,32 --json - --out " + out
	for _, restored := range []int{0, 4} {
		p := start(t, line)
		if status := p.wait(); status != 0 {
			t.Fatalf("status %d: %s", status, p.errs.String())
		}
		if n := strings.Count(p.errs.String(), "from an earlier start"); n != restored {
			t.Errorf("%d trials restored, want %d", n, restored)
		}
		lines := strings.Split(strings.TrimSpace(p.out.String()), "\n")
		var best bestTrial
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &best); err != nil || len(lines) != 5 {
			t.Fatalf("%v, %d records", err, len(lines))
		}
		if best.Event != "search" || best.Trials != 4 || best.Settings["training.lr"] != "0.01" {
			t.Errorf("%+v", best)
		}
		again := start(t, fmt.Sprintf("train %s --lr %s --batch %s --json -", base, best.Settings["training.lr"], best.Settings["training.batch"]))
		if status := again.wait(); status != 0 {
			t.Fatal(again.errs.String())
		}
		if text, _ := json.Marshal(best.Value); !strings.Contains(again.out.String(), fmt.Sprintf(`"eval_%s":%s`, best.Metric, text)) {
			t.Errorf("train has no evaluation with %s %s:\n%s", best.Metric, text, again.out.String())
		}
	}
	page, err := os.ReadFile(filepath.Join(out, "report.html"))
	if err != nil || !strings.Contains(string(page), "by-training.lr") || !strings.Contains(string(page), "by-training.batch") {
		t.Errorf("%v: the page has no chart by a setting", err)
	}
}

// Invalid values, settings of one run, and a launcher around the search are rejected before any
// trial.
func TestTuneRefuses(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "search")
	for flags, want := range map[string]string{
		"--try lr=0.1":                             "needs --out DIR",
		"--out " + out:                             "nothing to try",
		"--try lr=0.1,-2 --out " + out:             "a trial with training.lr=-2: --lr -2: want a positive number",
		"--try lr=0.1..1 --out " + out:             "needs --trials N",
		"--try lr=1,2 --checkpoint x --out " + out: "is of one run",
		"--try lr=1,2 --parallel -1 --out " + out:  "want 0 or more",
		"--try lr=1,2 --metric a --set training.monitor=loss --out " + out: "give one of both",
	} {
		p := start(t, "tune mlp --data synthetic "+flags)
		if status := p.wait(); status != exitUsage || !strings.Contains(p.errs.String(), want) {
			t.Errorf("%s: status %d, %s, want %q", flags, status, p.errs.String(), want)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a rejected search has made its folder")
	}
}
