package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/prng"
)

// rowsOf writes a table of n rows in which y depends on two numbers and a word; more appends
// columns to the header and to each row.
func rowsOf(t *testing.T, path string, seed uint64, n int, header string, more func(i int) (word, columns string)) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "a,b,town%s,y\n", header)
	for i := range n {
		r := prng.New(seed, 0, uint64(i))
		x, z, w := 4*r.Unit()-2, 4*r.Unit()-2, r.Below(12)
		word, columns := fmt.Sprintf("t%d", w), ""
		if more != nil {
			own := ""
			if own, columns = more(i); own != "" {
				word = own
			}
		}
		fmt.Fprintf(&b, "%.4f,%.4f,%s%s,%.4f\n", x, z, word, columns, 2*x-z*z+3*math.Sin(float64(w))+r.Unit()/4)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
}

// copyRun copies a run's folder.
func copyRun(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "run")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestResumeWithMoreRows: a resumed run takes appended rows, holds out the same rows as before, and
// has the same bits each time; the epoch in progress begins again.
func TestResumeWithMoreRows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, run := filepath.Join(dir, "d.csv"), filepath.Join(dir, "run")
	rowsOf(t, file, 5, 2000, "", nil)
	if status, out, errs := command(t, "train mlp --data "+file+" --epochs 3 --progress none --checkpoint "+run+" --checkpoint-every 20 --batch 32 --set training.monitor=r2"); status != 0 {
		t.Fatalf("status %d, %s%s", status, out, errs)
	}
	rowsOf(t, file, 5, 2100, "", nil)
	checkRefused(t, exitUsage, "train mlp --resume --checkpoint "+run+"-mistyped", "no data", `--resume "`+run+`-mistyped" has no checkpoint to take the data from`)
	checkRefused(t, exitFailed, "train mlp --resume --checkpoint "+run, "--epochs 3: ", "has 3 whole epochs, and none remains for the new samples: raise it")
	for _, np := range []string{"1", "2", "3"} {
		var sums []string
		for range 2 {
			status, out, errs := command(t, "train mlp --resume --epochs 5 --progress none --np "+np+" --checkpoint "+copyRun(t, run))
			checkHolds(t, np+" ranks", out+errs, "new samples: ", "of the checkpoint are unchanged", "the best epoch (r2, ", "is forgotten")
			if status != 0 {
				t.Fatalf("status %d, %s%s", status, out, errs)
			}
			_, sum, _ := strings.Cut(out, "params sha256 ")
			sums = append(sums, sum[:64])
		}
		if sums[0] != sums[1] {
			t.Errorf("%s ranks: %v", np, sums)
		}
	}
	middle := t.TempDir()
	name := "step-000000140.ringo" // in the third epoch, of 56 steps
	content, err := os.ReadFile(filepath.Join(run, name))
	if err == nil {
		err = os.WriteFile(filepath.Join(middle, name), content, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	status, out, errs := command(t, "train mlp --resume --progress none --checkpoint "+middle)
	if status != 0 {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	checkHolds(t, "mid-epoch", out+errs, "epoch 3 begins again with the new samples, after 28 steps", "epoch 3/3")
}

// TestResumeRefusesOtherRows: earlier rows that differ, also in an edited copy, missing rows,
// held-out rows among the training rows and a missing column are errors with the place and the
// remedy; a file of another day and new columns and words are accepted and printed.
func TestResumeRefusesOtherRows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, run := filepath.Join(dir, "d.csv"), filepath.Join(dir, "run")
	rowsOf(t, file, 5, 800, "", nil)
	if status, out, errs := command(t, "train mlp --data "+file+" --epochs 1 --progress none --checkpoint "+run); status != 0 {
		t.Fatalf("status %d, %s%s", status, out, errs)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(whole), "\n")
	put := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	resume := "train mlp --resume --epochs 2 --progress none --checkpoint "
	edited := append([]string{}, lines...)
	edited[500], edited[3] = "1"+edited[500], "1"+edited[3]
	rewrite := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	rewrite(strings.Join(edited, ""))
	checkRefused(t, exitFailed, resume+copyRun(t, run), "the data have changed: 2 of the ", " training samples of the checkpoint differ or are missing: number ", " ("+file+": line 4), ", " ("+file+": line 501): append new rows")
	checkRefused(t, exitFailed, resume+copyRun(t, run)+" --data "+put("copy.csv", strings.Join(edited, "")), "copy.csv: line 4), ", "but 7", " of these are here: a file of another name has either only later rows, or all earlier rows unchanged")
	rewrite(strings.Join(lines[:700], ""))
	checkRefused(t, exitFailed, resume+copyRun(t, run), "the data have changed: ", " of the checkpoint differ or are missing")
	rewrite(strings.ReplaceAll(strings.Join(edited, ""), ",town,", ",city,"))
	checkRefused(t, exitFailed, resume+copyRun(t, run), `column "town": no such column, which the model needs`)
	reversed := lines[0]
	for i := len(lines) - 2; i > 0; i-- {
		reversed += lines[i]
	}
	checkRefused(t, exitFailed, resume+copyRun(t, run)+" --data "+put("r.csv", reversed), "samples that the checkpoint's run held out for evaluation are training samples here")
	day := filepath.Join(dir, "day2.csv")
	rowsOf(t, day, 6, 500, ",new", func(i int) (string, string) { return map[bool]string{true: "elsewhere"}[i%50 == 0], ",1" })
	status, out, errs := command(t, resume+copyRun(t, run)+" --data "+day)
	if status != 0 {
		t.Errorf("another day: status %d, %s%s", status, out, errs)
	}
	checkHolds(t, "another day", out, "other samples: ", "instead of ", `column "town": in `, "a run with --init-from learns new values", "columns without use, since the checkpoint has none of the name: new; ")
}

// TestResumeRefusesNewClasses: a class only in the new rows is an error with its line, and image
// folders with another class list the names.
func TestResumeRefusesNewClasses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, run := filepath.Join(dir, "d.csv"), filepath.Join(dir, "run")
	rows := "x,label\n"
	for i := range 300 {
		rows += fmt.Sprintf("%d.5,%s\n", i%7, []string{"low", "high"}[i%7/4])
	}
	for i, text := range []string{rows, rows + "3.5,middle\n"} {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		line := "train mlp --data " + file + " --progress none --epochs 2 --checkpoint " + run
		if i == 0 {
			if status, out, errs := command(t, line+" --batch 16"); status != 0 {
				t.Fatalf("status %d, %s%s", status, out, errs)
			}
			continue
		}
		checkRefused(t, exitFailed, line+" --resume --epochs 3 --batch 16", file+": line 302", "middle")
	}
}

// TestInitFromKeepsWithNewColumnsAndWords: two new columns and three new words leave the test R² of
// a run that begins with another within 0.01 before the first step.
func TestInitFromKeepsWithNewColumnsAndWords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, wide, run := filepath.Join(dir, "d.csv"), filepath.Join(dir, "wide.csv"), filepath.Join(dir, "run")
	rowsOf(t, file, 5, 3000, "", nil)
	status, out, errs := command(t, "train mlp --data "+file+" --epochs 8 --batch 16 --progress none --json - --checkpoint "+run)
	if status != 0 {
		t.Fatalf("status %d, %s%s", status, out, errs)
	}
	before, _ := lastObject(t, out)["eval_r2"].(float64)
	rowsOf(t, wide, 5, 3000, ",size,colour", func(i int) (string, string) {
		return map[int]string{7: "x1", 1007: "x2", 2007: "x3"}[i], fmt.Sprintf(",%d.5,%s", i%17, []string{"red", "green"}[i%2])
	})
	status, out, errs = command(t, "train mlp --data "+wide+" --epochs 1 --lr 1e-30 --progress none --json - --init-from "+run)
	after, _ := lastObject(t, out)["eval_r2"].(float64)
	if status != 0 || before < 0.9 || math.Abs(after-before) > 0.01 {
		t.Errorf("status %d, R² %v after %v, %s", status, after, before, errs)
	}
}

// TestAppendedRowsMatchTrainingOnEverything: 8 epochs on 4,000 rows and 4 more with 5 % of rows
// appended reach the test R² of 12 epochs on all rows, within three deviations of runs with other
// seeds.
func TestAppendedRowsMatchTrainingOnEverything(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all, file := filepath.Join(dir, "all.csv"), filepath.Join(dir, "d.csv")
	rowsOf(t, all, 5, 4200, "", nil)
	last := func(line string) float64 {
		status, out, errs := command(t, "train mlp --progress none --json - "+line)
		v, _ := lastObject(t, out)["eval_r2"].(float64)
		if status != 0 || v == 0 {
			t.Fatalf("%s: status %d, %s", line, status, errs)
		}
		return v
	}
	var whole, resumed []float64
	for seed := 1; seed <= 4; seed++ {
		of, run := fmt.Sprintf(" --seed %d", seed), filepath.Join(dir, fmt.Sprint("run", seed))
		whole = append(whole, last("--data "+all+" --epochs 12"+of))
		rowsOf(t, file, 5, 4000, "", nil)
		last("--data " + file + " --epochs 8 --checkpoint " + run + of)
		rowsOf(t, file, 5, 4200, "", nil)
		resumed = append(resumed, last("--epochs 12 --resume --checkpoint "+run))
	}
	mean := func(x []float64) (m, sd float64) {
		for _, v := range x {
			m += v / float64(len(x))
		}
		for _, v := range x {
			sd += (v - m) * (v - m) / float64(len(x)-1)
		}
		return m, math.Sqrt(sd)
	}
	a, sa := mean(whole)
	b, sb := mean(resumed)
	t.Logf("test R² of 4 seeds: all rows %.4f ± %.4f, resumed with 5 %% more %.4f ± %.4f", a, sa, b, sb)
	if math.Abs(a-b) > 3*max(sa, sb) || a < 0.9 {
		t.Errorf("all rows %v, resumed %v", whole, resumed)
	}
}

// TestResumeEachDay: the commands of docs/retrain.md train day 1, and then day 2, which was held
// out before, with and without --stream. Earlier training rows are refused as evaluation rows.
func TestResumeEachDay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	day := func(i int) string { return filepath.Join(dir, fmt.Sprint(i), "train.tsv") }
	for i := 1; i <= 3; i++ {
		more := fmt.Sprintf("data clicks --layout criteo --generate 600 --seed %d --progress none --out %s", i, filepath.Dir(day(i)))
		if status, out, errs := command(t, more); status != 0 {
			t.Fatalf("status %d, %s%s", status, out, errs)
		}
	}
	for _, c := range []struct{ more, text string }{
		{"", "other samples: 600 to train on, 600 to evaluate on, instead of 600 and 600 of the checkpoint; 600 that were held out before are training samples now"},
		{" --stream", "other samples to evaluate on: 600 instead of 600 of the checkpoint"},
	} {
		run := filepath.Join(t.TempDir(), "run")
		train := "train ctr-dnn --progress none --batch 100" + c.more + " --checkpoint " + run
		if status, out, errs := command(t, train+" --train-file "+day(1)+" --eval-file "+day(2)); status != 0 {
			t.Fatalf("status %d, %s%s", status, out, errs)
		}
		if c.more == "" {
			checkRefused(t, exitFailed, train+" --resume --epochs 2 --train-file "+day(2)+" --eval-file "+day(1), "600 of the 600 evaluation samples were training samples of the checkpoint's run")
		}
		status, out, errs := command(t, train+" --resume --epochs 2 --train-file "+day(2)+" --eval-file "+day(3))
		if checkHolds(t, c.more, out+errs, c.text); status != 0 {
			t.Errorf("%s: status %d, %s%s", c.more, status, out, errs)
		}
	}
}
