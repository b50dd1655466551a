package reportcmd

import (
	"encoding/json"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cli/commandtest"
	"github.com/ringo-ml/ringo/internal/runlog"
)

// hostile is text that a page would run if it did not escape it.
const hostile = `<img src=x onerror=alert(1)>`

// records writes the records of a run to a file, and returns where.
func records(t *testing.T, dir, name string, batch string, seeds ...int) string {
	t.Helper()
	var b strings.Builder
	line := func(v any) {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(text, '\n'))
	}
	line(runlog.Job{Event: "job", Ringo: "0.1.0", Settings: map[string]string{"training.batch": batch}, Machine: runlog.Machine{Host: hostile, CPU: "X", CPUs: 2}})
	for _, seed := range seeds {
		line(runlog.Info{Event: "run", Seed: uint64(seed), Model: "mlp", NP: 2, DataSet: hostile, Metrics: []runlog.Metric{{Name: "accuracy", Title: "accuracy", Percent: true}}})
		for step := range 5 {
			line(map[string]any{"event": "step", "seed": seed, "epoch": 1, "done": step + 1, "wall_s": step, "loss": 1. / float64(step+seed)})
		}
		for epoch := 1; epoch <= 3; epoch++ {
			line(map[string]any{
				"event": "epoch", "seed": seed, "epoch": epoch, "done": 5 * epoch, "wall_s": 10*epoch + seed, "train_loss": 1. / float64(epoch), "eval_loss": 1.5 / float64(epoch),
				"eval_accuracy": 0.5 + 0.1*float64(epoch) + 0.01*float64(seed), "samples_per_s": 1000 * seed, "step_ms": 10, "compute_ms": 7, "data_wait_ms": 1, "exposed_comm_ms": 3,
				"step_bytes_sent": 4096, "bytes_sent": 1e6, "wire_bytes": 1.1e6, "density": 0.5,
			})
		}
		line(map[string]any{"event": "summary"})
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

var tags = regexp.MustCompile(`<[^>]*>`)

func TestReport(t *testing.T) {
	dir := t.TempDir()
	a, b := records(t, dir, "a.jsonl", "64", 1, 2), records(t, dir, "b.jsonl", hostile, 1)
	page := filepath.Join(dir, "r.html")
	status, out, errs := commandtest.Run(Command(), fmt.Sprintf("%s %s --out %s --target 75%%", a, b, page))
	if status != 0 || out != fmt.Sprintf("report of 3 runs in %s\n", page) {
		t.Fatalf("status %d, %q, %q", status, out, errs)
	}
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(raw), script(), "", 1)
	text, data := cut(t, text, `<script type="application/json" id="data">`, "</script>")
	shown := strings.Join(strings.Fields(tags.ReplaceAllString(text, " ")), " ")
	commandtest.Holds(t, "the page", shown, "3 runs of mlp", "3 runs in 2 groups", "target: test accuracy of 75.00%, as asked for",
		"batch=64 2 81.50% ± 0.71%", "seconds to 75.00%", "31.5 ± 0.71 3", "The charts need JavaScript",
		"forward and backward 6 6", "exposed exchange 3 3", "by a rank in a step 4.1 kB 4.1 kB", "training.batch 64 &lt;img", "processor X X")
	if !strings.Contains(shown, "seconds to 75.00%") || strings.Contains(text+data, "<img") || strings.Count(text, "<script") != 1 || len(text) > len(raw)-len(script()) {
		t.Error("text of a file is not escaped")
	}
	icon := regexp.MustCompile(`<link rel="icon" href="data:[^"]*">`)
	if len(icon.FindAllString(text, -1)) != 1 {
		t.Error("no icon in the page")
	}
	text = icon.ReplaceAllString(text, "") // data within the page
	for _, what := range []string{`src=`, `href=`, `url(`, `@import`, `<link`} {
		if strings.Contains(strings.ReplaceAll(text, "&lt;img src=x", ""), what) {
			t.Errorf("the page asks for something: %s", what)
		}
	}
	if strings.Count(text+data, "http") != 1 || !strings.Contains(html.UnescapeString(text), "script-src "+ScriptSource()) {
		t.Errorf("%d times http, or a policy without the script", strings.Count(text+data, "http"))
	}
	checkFigures(t, data)
}

// cut takes what lies between two texts out of a page.
func cut(t *testing.T, page, from, to string) (rest, part string) {
	t.Helper()
	before, after, found := strings.Cut(page, from)
	part, after, closed := strings.Cut(after, to)
	if !found || !closed {
		t.Fatalf("the page has no %s", from)
	}
	return before + after, part
}

// checkFigures compares the data of the charts with the records: means of two seeds, with the spread beside them.
func checkFigures(t *testing.T, data string) {
	t.Helper()
	var all []figure
	if err := json.Unmarshal([]byte(data), &all); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range all {
		names = append(names, f.Name)
	}
	if got := strings.Join(names, " "); got != "step-loss train-loss test-accuracy test-loss time-accuracy rate parts density" {
		t.Errorf("charts %s", got)
	}
	if got := fmt.Sprintf("%.4g", []any{all[0].X, all[0].Data[1]}); got != "[[1 2 3 4 5] [1 0.5 0.3333 0.25 0.2]]" {
		t.Errorf("the loss by step: %s", got)
	}
	f := all[2]
	if got := fmt.Sprintf("%.4g", []any{f.X, f.Data[0], f.Low[0], f.High[0]}); got != "[[1 2 3] [0.615 0.715 0.815] [0.61 0.71 0.81] [0.62 0.72 0.82]]" || !f.Percent {
		t.Errorf("the accuracy by epoch: %s, %+v", got, f)
	}
	f = all[4]
	if got := fmt.Sprintf("%.4g", []any{f.X, f.Data}); got != "[[11 11.5 21 21.5 31 31.5] [[NaN 0.615 NaN 0.715 NaN 0.815] [0.61 NaN 0.71 NaN 0.81 NaN]]]" || !f.FromZero {
		t.Errorf("the accuracy by time: %s, %+v", got, f)
	}
	f = all[6]
	if got := fmt.Sprintf("%v", []any{f.Names, f.Labels, f.Data}); got != "[[batch=64 batch="+hostile+"] [forward and backward waiting for data exposed exchange] [[6 6] [1 1] [3 3]]]" || f.Kind != "bars" {
		t.Errorf("the parts: %s, %+v", got, f)
	}
}

// Without a target it is what all runs reach. What a file lacks is told.
func TestReportOfACutRun(t *testing.T) {
	dir := t.TempDir()
	a := records(t, dir, "a.jsonl", "64", 1)
	text, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	cut := strings.Replace(string(text), `{"event":"summary"}`, `{"event":"sum`, 1)
	if err := os.WriteFile(a, []byte(cut), 0o666); err != nil {
		t.Fatal(err)
	}
	q, err := read([]string{a})
	if err == nil {
		err = q.aim("")
	}
	if err != nil {
		t.Fatal(err)
	}
	c := q.answer()
	commandtest.Holds(t, "notes", strings.Join(c.Notes, "\n"), "left out 1 line that ended too early", "seed 1 has no summary")
	commandtest.Holds(t, "facts", strings.Join(c.Facts, "\n"), "accuracy of 81.00%, which all runs reach")
}

func TestReportRefuses(t *testing.T) {
	dir := t.TempDir()
	a := records(t, dir, "a.jsonl", "64", 1)
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, []byte(`{"event":"zzz"}`), 0o666); err != nil {
		t.Fatal(err)
	}
	out := " --out " + filepath.Join(dir, "r.html")
	for line, want := range map[string]string{
		a + " --target zzz=1": "the evaluations have accuracy, loss", a + " --target x": "want a figure", "": "needs a file of --json",
	} {
		commandtest.Refused(t, Command(), cli.UsageError, line+out, want)
	}
	for line, want := range map[string]string{
		empty: "no run: want what `ringo train --json FILE` writes", a + "x": "no such file", dir: "it is a folder",
		filepath.Join(dir, "page_test.go"): "no such file",
	} {
		status, _, errs := commandtest.Run(Command(), line+out)
		if status != cli.Failed || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, %q, want %q", line, status, errs, want)
		}
	}
	if status, _, errs := commandtest.Run(Command(), a+" --out "+filepath.Join(dir, "no", "r.html")); status != cli.Failed || !strings.Contains(errs, "--out: ") {
		t.Errorf("status %d, %q", status, errs)
	}
}
