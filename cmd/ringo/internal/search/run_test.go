package search

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain is a trial's program if its first argument is "trial": it trains nothing, and writes
// records with the learning rate as the accuracy.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "trial" {
		os.Exit(fakeTrial(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func fakeTrial(args []string) int {
	lr, records := "", ""
	for i, a := range args {
		switch a {
		case "--set":
			lr = strings.TrimPrefix(args[i+1], "training.lr=")
		case "--json":
			records = args[i+1]
		}
	}
	started := filepath.Join(filepath.Dir(records), "..", "..", "started")
	if f, err := os.OpenFile(started, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666); err == nil {
		fmt.Fprintln(f, lr)
		_ = f.Close()
	}
	switch lr {
	case "13":
		fmt.Fprintln(os.Stderr, "ringo: training diverged")
		return 1
	case "14":
		fmt.Fprintln(os.Stderr, "ringo: --lr 14: want less")
		return 2
	case "0.15":
		if text, err := os.ReadFile(started); err != nil || strings.Count(string(text), "0.15") == 1 { // the first start hangs
			time.Sleep(time.Hour)
		}
	}
	text := `{"event":"run","seed":1,"metrics":[{"name":"accuracy","title":"accuracy","percent":true}]}` + "\n"
	for epoch, a := range []string{"0.5", lr, "0.25"} {
		text += fmt.Sprintf(`{"event":"epoch","seed":1,"epoch":%d,"done":%d,"wall_s":1,"eval_accuracy":%s}`+"\n", epoch+1, epoch+1, a)
	}
	if err := os.WriteFile(records, []byte(text), 0o666); err != nil {
		return 3
	}
	return 0
}

// searchOf returns a search of learning rates in a folder of dir, and the list of its reports.
func searchOf(t *testing.T, dir, values string) (Config, *[]string) {
	t.Helper()
	space, err := parse(t, "lr="+values)
	if err != nil {
		t.Fatal(err)
	}
	trials, err := space.Trials(0)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	reports := new([]string)
	return Config{
		Plan: Plan{Model: "mlp", Try: []string{"lr=" + values}}, Space: space, Trials: trials, Program: program, Args: []string{"trial"},
		Folder: filepath.Join(dir, "search"), Parallel: 2, Best: true, Begin: func() {},
		Report: func(_ Search, r Result, restored bool) { *reports = append(*reports, fmt.Sprint(r.Number, restored)) },
	}, reports
}

// Results are ordered by the best evaluation of each run, failed trials last, and a repeated search
// starts no process.
func TestRunOrdersAndRestores(t *testing.T) {
	dir := t.TempDir()
	for _, restored := range []bool{false, true} {
		cfg, reports := searchOf(t, dir, "0.6,13,0.9,0.7")
		found, err := Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, r := range found.Results {
			order = append(order, fmt.Sprint(r.Number, " ", r.Value, " ", r.Epoch, " ", r.Error))
		}
		if want := []string{"3 0.9 2 ", "4 0.7 2 ", "1 0.6 2 ", "2 0 0 training diverged"}; !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
		slices.Sort(*reports)
		if want := fmt.Sprintf("[1 %[1]v 2 %[1]v 3 %[1]v 4 %[1]v]", restored); fmt.Sprint(*reports) != want {
			t.Errorf("reports %v, want %v", *reports, want)
		}
		var table strings.Builder
		if err := found.WriteTable(&table); err != nil || !strings.Contains(table.String(), "90.00%") || !strings.Contains(table.String(), "1 trial failed") {
			t.Errorf("%v\n%s", err, table.String())
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "started"))
	if lines := strings.Fields(string(text)); err != nil || len(lines) != 4 {
		t.Errorf("%v, %q were started, want 4 trials once", err, lines)
	}
}

// The last evaluation counts without Best, and another metric is rejected with the known ones.
func TestRunByMetric(t *testing.T) {
	cfg, _ := searchOf(t, t.TempDir(), "0.6,0.9")
	cfg.Best = false
	found, err := Run(t.Context(), cfg)
	if err != nil || found.Results[0].Value != 0.25 || found.Results[0].Number != 1 || found.Results[0].Epoch != 3 {
		t.Errorf("%v, %+v", err, found.Results)
	}
	cfg.Metric = "auc"
	if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "the evaluations have accuracy, loss") {
		t.Error(err)
	}
}

// A folder of another search, or of other files, is left as it is.
func TestRunRejectsOtherFolders(t *testing.T) {
	dir := t.TempDir()
	cfg, _ := searchOf(t, dir, "0.6,0.9")
	if _, err := Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	other, _ := searchOf(t, dir, "0.6,0.8")
	if _, err := Run(t.Context(), other); err == nil || !strings.Contains(err.Error(), "--try was lr=0.6,0.9, and is lr=0.6,0.8") {
		t.Error(err)
	}
	cfg.Folder = dir
	if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "no search.json") {
		t.Error(err)
	}
	result := filepath.Join(dir, "search", "trial-0001", "result.json")
	if err := os.WriteFile(result, []byte(`{"trial":1,`), 0o666); err != nil {
		t.Fatal(err)
	}
	cfg.Folder = filepath.Join(dir, "search")
	if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "delete the trial's folder") {
		t.Error(err)
	}
}

// Invalid settings end the search, and so does a search of failures.
func TestRunEndsAtInvalidSettings(t *testing.T) {
	for values, want := range map[string]string{"14,0.5": "trial 1 (training.lr=14): --lr 14: want less", "13": "all 1 trials failed"} {
		cfg, _ := searchOf(t, t.TempDir(), values)
		if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", values, err, want)
		}
	}
}

// An interrupted search ends its processes, and a repeated one runs only unfinished trials.
func TestRunContinuesAfterInterruption(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	cfg, reports := searchOf(t, dir, "0.6,0.15,0.7")
	report := cfg.Report
	cfg.Report = func(s Search, r Result, restored bool) {
		if report(s, r, restored); len(*reports) == 2 { // the other trial hangs, once it has said that it began
			for text := []byte(nil); !strings.Contains(string(text), "0.15"); time.Sleep(time.Millisecond) {
				text, _ = os.ReadFile(filepath.Join(dir, "started"))
			}
			cancel(errors.New("interrupted"))
		}
	}
	if _, err := Run(ctx, cfg); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Fatal(err)
	}
	cfg, reports = searchOf(t, dir, "0.6,0.15,0.7")
	if _, err := Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if want := []string{"1 true", "3 true", "2 false"}; !slices.Equal(*reports, want) {
		t.Errorf("%q, want %q", *reports, want)
	}
}
