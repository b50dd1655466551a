package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/datatest"
)

// lastObject is the last line of JSON of a text.
func lastObject(t *testing.T, text string) map[string]any {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	out := map[string]any{}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &out); err != nil {
		t.Fatalf("%q: %v", lines[len(lines)-1], err)
	}
	return out
}

// What eval finds is what the run found at its end: to the last digit with as many ranks; with others, counts and AUC are the same and
// losses but for rounding.
func TestEvalRepeatsTheRun(t *testing.T) {
	t.Parallel()
	words := strings.Repeat("the cat sat on the mat and saw a dog run to the tree near a red house\n", 40)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte(words), 0o666); err != nil {
		t.Fatal(err)
	}
	table := filepath.Join(t.TempDir(), "table.csv")
	rows := "x,word,y\n"
	for i := range 400 {
		rows += fmt.Sprintf("%d,%s,%d\n", i*i%97, []string{"a", "b", "c"}[i%3], i*i%97+10*(i%3))
	}
	if err := os.WriteFile(table, []byte(rows), 0o666); err != nil {
		t.Fatal(err)
	}
	for name, line := range map[string]string{
		"table":      "mlp --data " + table + " --batch 32",
		"images":     "mlp --data synthetic --batch 64 --train-limit 1300 --eval-limit 401",
		"clicks":     "ctr-dnn --data synthetic --batch 128 --train-limit 1300 --eval-limit 401 --set data.table-rows=5000",
		"on servers": "ctr-dnn --data synthetic --batch 128 --train-limit 1300 --eval-limit 401 --set data.table-rows=5000 --sync bsp",
		"batch norm": "cifar-resnet20 --data synthetic --batch 8 --set data.train-limit=48 --set data.eval-limit=33",
		"copies":     "ctr-dnn --data synthetic --batch 64 --set data.train-limit=640 --set data.eval-limit=333 --sync geo --set ps.geo-steps=2",
		"text":       "lstm --train-file " + text + " --eval-file " + text + " --batch 2",
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "saved")
			status, out, errs := command(t, "train "+line+" --np 2 --epochs 1 --progress none --json - --checkpoint "+dir)
			if status != 0 {
				t.Fatalf("training: status %d, %s", status, errs)
			}
			want := lastObject(t, out)
			for _, np := range []string{"2", "1"} {
				status, out, errs := command(t, "eval "+dir+" --np "+np+" --progress none --json -")
				if status != 0 {
					t.Fatalf("%s ranks: status %d, %s", np, status, errs)
				}
				checkSame(t, np, lastObject(t, out), want)
			}
			left, err := os.ReadDir(dir)
			for _, e := range left {
				if e.Name() == "start-2" || err != nil {
					t.Errorf("eval has left %s, %v", e.Name(), err)
				}
			}
		})
	}
}

// checkSame compares the figures of an evaluation by so many ranks with those of a run of two.
func checkSame(t *testing.T, np string, got, want map[string]any) {
	t.Helper()
	compared := 0
	for name, w := range want {
		if !strings.HasPrefix(name, "eval_") {
			continue
		}
		compared++
		x, _ := got[name].(float64)
		y, _ := w.(float64)
		exact := np == "2" || name == "eval_accuracy" || name == "eval_auc"
		if exact && x != y || math.Abs(x-y) > 1e-6*max(1, y) {
			t.Errorf("%s ranks: %s is %v, the run had %v", np, name, got[name], w)
		}
	}
	for _, table := range []string{"classes", "numbers", "clicks"} {
		if !reflect.DeepEqual(got[table], want[table]) {
			t.Errorf("%s ranks: the table of %s is %v, the run had %v", np, table, got[table], want[table])
		}
	}
	if compared < 2 {
		t.Errorf("the run had %d figures: %v", compared, want)
	}
}

// Checkpoints that cannot be read, or are none.
func TestEvalRefuses(t *testing.T) {
	empty, dir := t.TempDir(), t.TempDir()
	bad := filepath.Join(dir, "step-000000001.ringo")
	if err := os.WriteFile(bad, []byte("not one"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line, want string
	}{
		{"eval", "needs one checkpoint"},
		{"eval a b", "needs one checkpoint"},
		{"eval " + empty, "no checkpoint is there"},
		{"eval " + filepath.Join(empty, "nowhere"), "no such file"},
		{"eval " + bad, bad},
		{"eval " + dir, bad},
	} {
		if status, out, errs := command(t, c.line); status == 0 || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("ringo %s: status %d, stdout %q, stderr %q, want %q", c.line, status, out, errs, c.want)
		}
	}
}

// Data with an evaluation part are evaluated on it, also if the run held out a share.
func TestEvalOfDataWithEvaluationPart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	saved, held, parts := filepath.Join(dir, "saved"), filepath.Join(dir, "held"), filepath.Join(dir, "parts")
	paint := func(folder string, n int) {
		for class := range 2 {
			below := filepath.Join(folder, fmt.Sprint("c", class))
			if err := os.MkdirAll(below, 0o777); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if err := os.WriteFile(filepath.Join(below, fmt.Sprint(i, ".png")), datatest.EncodePNG(datatest.Colourful(8, 8, uint64(2*i+class))), 0o666); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	paint(held, 20)
	paint(filepath.Join(parts, "train"), 2)
	paint(filepath.Join(parts, "val"), 7)
	if status, _, errs := command(t, "train mlp --data "+held+" --image-size 8 --eval-split 0.3 --batch 4 --epochs 1 --progress none --checkpoint "+saved); status != 0 {
		t.Fatal(errs)
	}
	for np := 1; np <= 2; np++ {
		status, out, errs := command(t, fmt.Sprintf("eval %s --data %s --np %d --progress none --json -", saved, parts, np))
		if status != 0 || !strings.Contains(out+errs, "the run's data.eval-split 0.3 has no effect: these data have evaluation samples") {
			t.Fatalf("status %d, %s", status, errs)
		}
		if n := lastObject(t, out)["samples"]; n != 14. {
			t.Errorf("%v samples, want the 14 of val", n)
		}
	}
	checkRefused(t, exitFailed, "train mlp --data "+parts+" --image-size 8 --eval-split 0.3", "eval-split 0.3: no samples are held out")
}

// TestEvalPrintsWorstSamplesAndImportance prints the worst rows with file and line, and the columns
// by importance; processes of 1, 2 and 3 ranks write equal records.
func TestEvalPrintsWorstSamplesAndImportance(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	table, saved := filepath.Join(dir, "table.csv"), filepath.Join(dir, "saved")
	rows := "x,noise,word,y\n"
	for i := range 400 {
		rows += fmt.Sprintf("%d,%d,%s,%d\n", i*i%97, i*i%89, []string{"a", "b", "c"}[i%3], i*i%97+5*(i%3))
	}
	if err := os.WriteFile(table, []byte(rows), 0o666); err != nil {
		t.Fatal(err)
	}
	status, out, errs := command(t, "train mlp --data "+table+" --batch 16 --epochs 8 --progress none --json - --checkpoint "+saved)
	if status != 0 {
		t.Fatal(errs)
	}
	trained := lastObject(t, out)["worst"].([]any)
	if status, _, errs := command(t, "eval "+saved+" --importance 7"); status != 2 || !strings.Contains(errs, "--importance 7: a number follows an equals sign") {
		t.Errorf("status %d, %s", status, errs)
	}
	var records []map[string]any
	for np := 1; np <= 3; np++ {
		status, out, errs := command(t, fmt.Sprintf("eval %s --np %d --worst 3 --importance=2 --progress none --json -", saved, np))
		if status != 0 || !strings.Contains(errs, "3 samples with the largest loss:") || !strings.Contains(errs, table+": line ") ||
			!strings.Contains(errs, "if the values of one input are permuted, 2 times:") || !strings.Contains(errs, "mean absolute error in deviations ") {
			t.Fatalf("status %d, %s", status, errs)
		}
		records = append(records, lastObject(t, out))
	}
	for _, r := range records {
		for _, field := range []string{"worst", "importance"} {
			if !reflect.DeepEqual(r[field], records[0][field]) || len(r[field].([]any)) != 3 {
				t.Errorf("%s: %v, with 1 rank %v", field, r[field], records[0][field])
			}
		}
	}
	if first := records[0]["importance"].([]any)[0].(map[string]any); first["input"] != "x" || first["repeats"] != 2. || first["loss_rise"].(float64) <= 0 {
		t.Errorf("most important is %v", first)
	}
	if len(trained) != 6 || !reflect.DeepEqual(trained[:3], records[0]["worst"]) {
		t.Errorf("worst of the run %v, of its evaluation %v", trained, records[0]["worst"])
	}
	worst := records[0]["worst"].([]any)[0].(map[string]any)
	lines := strings.Split(rows, "\n")
	var line int
	if _, err := fmt.Sscanf(strings.TrimPrefix(worst["place"].(string), table+": line "), "%d", &line); err != nil || !strings.HasSuffix(lines[line-1], fmt.Sprintf(",%.0f", worst["truth"])) {
		t.Errorf("%v: line %q, %v", worst, lines[max(0, line-1)], err)
	}
}

// TestEvalPrintsGroups prints a row for each day, of clicks with a column that the layout lacks and
// of a table with two classes; processes of 1, 2 and 3 ranks write equal records.
func TestEvalPrintsGroups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rows := "day,x,item,click\n"
	for i := range 400 {
		rows += fmt.Sprintf("2026-11-%02d,%d,%d,%d\n", 1+i%4, i%10, i%7, i%10/6*min(1, i%4))
	}
	layout := "separator: comma\nheader: true\ncolumns:\n  - {name: click, kind: label}\n  - {name: x, kind: number}\n  - {name: item, kind: category}\n"
	for name, text := range map[string]string{"rows.csv": rows, "my.yaml": layout} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "rows.csv")
	for model, flags := range map[string]string{
		"wide-deep": fmt.Sprintf("--train-file %s --eval-file %s --layout %s --set data.table-rows=1000", file, file, filepath.Join(dir, "my.yaml")),
		"mlp":       "--data " + file + " --set data.target=click --set data.schema=click=label --eval-split 0.5",
	} {
		saved := filepath.Join(dir, model)
		if status, _, errs := command(t, "train "+model+" "+flags+" --batch 16 --epochs 2 --progress none --checkpoint "+saved); status != 0 {
			t.Fatal(errs)
		}
		var first any
		for np := 1; np <= 3; np++ {
			status, out, errs := command(t, fmt.Sprintf("eval %s --np %d --by day --progress none --json -", saved, np))
			if status != 0 || !strings.Contains(errs, "\n2026-11-04") || !strings.Contains(errs, "AUC is undefined (-) in 1 group with one label\nmean AUC of 3 groups") {
				t.Fatalf("%s: status %d, %s", model, status, errs)
			}
			groups := lastObject(t, out)["groups"].(map[string]any)
			if first == nil {
				first = groups
			}
			day := groups["per_group"].([]any)[0].(map[string]any)
			if !reflect.DeepEqual(groups, first) || day["value"] != "2026-11-01" || day["auc"] != nil || groups["groups_with_auc"] != 3. {
				t.Errorf("%s with %d ranks: %v, with one %v", model, np, groups, first)
			}
		}
		if status, _, errs := command(t, "eval "+saved+" --by dya"); status != exitFailed || !strings.Contains(errs, `(did you mean "day"?)`) {
			t.Errorf("%s: status %d, %s", model, status, errs)
		}
	}
}
