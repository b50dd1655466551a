package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var onnxRuntime = flag.String("onnxruntime", "", "`folder` with node_modules/onnxruntime-node, with which exported graphs are compared")

// mixedRows writes rows of numbers, words and dates, some of which are missing or, with unknown,
// absent from training.
func mixedRows(rows int, seed uint64, unknown bool) string {
	r := rand.New(rand.NewPCG(seed, 2))
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	var b strings.Builder
	b.WriteString("age,visits,paid,when,day,seen,size,\"the, town\",colour,few,price,kind\n")
	for range rows {
		x := r.NormFloat64()*9 + 50
		size, few := fmt.Sprintf("%.4f", x), pick("1", "2.5", "-3e2")
		if r.IntN(8) == 0 {
			size = pick("", "NA", "?")
		}
		towns, colours := []string{"Köln", "\"a, b\"", "\"say \"\"x\"\"\"", "", "1", "x y"}, []string{"red", "green", "None", "NaN"}
		if unknown {
			towns, colours = append(towns, "Ulm", " ", "köln"), append(colours, "blue")
		}
		kind := "low"
		if x > 50 {
			kind = pick("high", "\"very, high\"")
		}
		day := time.Unix(r.Int64N(4e9)-2e9, 0).UTC()
		seen := pick(day.Format(time.DateTime), "1900-02-28 23:59:59", "2000-02-29 00:00:00", "")
		fmt.Fprintf(&b, "%s,%d,%s,", pick("", "18", "34.5", "71"), r.IntN(40), pick("yes", "no"))
		fmt.Fprintf(&b, "%d,%s,%s,%s,%s,%s,%s,%.2f,%s\n", 1_700_000_000+r.IntN(100_000), day.Format(time.DateOnly), seen, size, pick(towns...), pick(colours...), few, 1e6+x*20+r.Float64(), kind)
	}
	return b.String()
}

// answer is a line of predictions.
type answer struct {
	Row         int
	Prediction  any
	Probability float64
}

func answers(t *testing.T, text string) (all []answer) {
	t.Helper()
	for line := range strings.Lines(text) {
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, a)
	}
	return all
}

// apart returns the difference of two predictions: of numbers as a share of the larger.
func apart(a, b answer) float64 {
	x, number := a.Prediction.(float64)
	y, also := b.Prediction.(float64)
	switch {
	case number && also:
		return math.Abs(x-y) / max(1, math.Abs(x))
	case a.Prediction != b.Prediction || number || also:
		return math.Inf(1)
	}
	return math.Abs(a.Probability - b.Probability)
}

// The examples in Python and JavaScript print for raw rows what `ringo predict` prints, to 1e-5:
// one row, many, missing values, dates and unknown words.
func TestONNXRuntimeAgreesOnRawRows(t *testing.T) {
	if *onnxRuntime == "" {
		t.Skip("whether ONNX Runtime computes what predict does was NOT tested: .ci/run does it, by go test ./cmd/ringo -run ONNXRuntime -onnxruntime FOLDER")
	}
	modules, err := filepath.Abs(*onnxRuntime)
	if err != nil {
		t.Fatal(err)
	}
	example := func(program ...string) string {
		cmd := exec.Command(program[0], program[1:]...)
		cmd.Dir = modules
		cmd.Env = append(os.Environ(), "PYTHONPATH="+absolute(t, "testdata/onnxruntime"), "PYTHONDONTWRITEBYTECODE=1")
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, &errs)
		}
		return string(out)
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	train := write("train.csv", mixedRows(40_000, 1, false)) // 12 columns
	many, one := mixedRows(200, 3, true), mixedRows(1, 4, true)
	for _, line := range []string{"--set data.target=price", "--set data.target=kind", "--set data.target=kind --servers 1 --sync bsp"} {
		run, graph := filepath.Join(dir, "run"+strings.ReplaceAll(line, " ", "")), filepath.Join(dir, "model.onnx")
		commands := []string{"train mlp --epochs 2 --batch 64 --progress none --data " + train + " --checkpoint " + run + " " + line, "export " + run + " --format onnx --out " + graph}
		for _, c := range commands {
			if status, _, errs := command(t, c); status != 0 {
				t.Fatalf("%s: status %d, %s", c, status, errs)
			}
		}
		for _, rows := range []string{write("many.csv", many), write("one.csv", one)} {
			status, text, errs := command(t, "predict "+run+" --progress none --data "+rows)
			if status != 0 {
				t.Fatalf("predict: status %d, %s", status, errs)
			}
			want := answers(t, text)
			for _, program := range [][]string{{"/usr/bin/python3", "predict.py"}, {"node", "predict.js"}} {
				got := answers(t, example(program[0], absolute(t, "../../examples/onnx/"+program[1]), graph, rows))
				if len(got) != len(want) || len(want) == 0 {
					t.Fatalf("%s: %d predictions, want %d", program, len(got), len(want))
				}
				far := 0.0
				for i := range want {
					far = max(far, apart(want[i], got[i]))
				}
				t.Logf("%s, %d rows, %s: %.2g apart", line, len(want), program[1], far)
				if !(far <= 1e-5) {
					t.Errorf("%s: %s is %.2g apart", line, program[1], far)
				}
			}
		}
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
