package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/nn"
)

// firstValues are the bytes of all dense parameters that a run of seed 1 begins with.
func firstValues(t *testing.T, name string) (out []string) {
	t.Helper()
	spec, err := models.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	ps := nn.NewParams(1)
	ps.TablesElsewhere()
	spec.Build(ps, model.Options{Input: spec.Input, Classes: spec.Classes})
	for _, p := range ps.List() {
		b, err := binary.Append(nil, binary.LittleEndian, p.Data)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(b))
	}
	return out
}

// What runs of ranks and of servers have saved is written as graphs, which say what their inputs are and were made of.
func TestExportGraphs(t *testing.T) {
	table := filepath.Join(t.TempDir(), "table.csv")
	rows := "size,colour,y\n"
	for i := range 60 {
		rows += fmt.Sprintf("%d,%s,%d\n", i^1, []string{"red", "green"}[i%2], i*i)
	}
	if err := os.WriteFile(table, []byte(rows), 0o666); err != nil {
		t.Fatal(err)
	}
	const few = " --set data.train-limit=600 --set data.eval-limit=200"
	const encoded, raw, unsaid = " --inputs encoded", " --inputs raw", ""
	for _, c := range []struct {
		line, inputs, says string
		has                []string
	}{
		{"mlp --data synthetic" + few, encoded, "the graph values [batch 1 28 28] -> logits [batch 10] of mlp", []string{"deviation\x12\x060.3081", "hidden.weight"}},
		{"mlp --data synthetic" + few, raw, "the graph pixels [batch 28 28 1] uint8 -> prediction [batch] string, probability [batch], probabilities [batch 10], classes [10] string of mlp", nil},
		{"mlp --batch 8 --data " + table, encoded, "the graph values [batch 1], ids [batch 1] -> prediction [batch 1] of mlp", []string{`"words":["green","red"]`, `"kind":"target"`}},
		{"mlp --batch 8 --data " + table, unsaid, "the graph size [batch] float64, colour [batch] string -> prediction [batch] float64 of mlp", []string{"LabelEncoder", "ai.onnx.ml"}},
		{"ctr-dnn --data synthetic --lr 1e-30 --sync bsp --servers 2 --set data.table-rows=1000001 --set training.freeze=fc2.*" + few, unsaid, "the graph values [batch 13], embedding [batch 260] -> logits [batch 2] of ctr-dnn", firstValues(t, "ctr-dnn")},
		{"mlp --data synthetic --lr 1e-30 --sync bsp --servers 2" + few, encoded, "the graph values [batch 1 28 28] -> logits [batch 10] of mlp", firstValues(t, "mlp")[1:]},
	} {
		dir, out := filepath.Join(t.TempDir(), "saved"), filepath.Join(t.TempDir(), "model.onnx")
		if status, _, errs := command(t, "train "+c.line+" --epochs 1 --progress none --checkpoint "+dir); status != 0 {
			t.Fatalf("%s: status %d, %s", c.line, status, errs)
		}
		status, said, errs := command(t, "export "+dir+" --format onnx --out "+out+c.inputs)
		if status != 0 || withoutChoice(errs) != "" || !strings.Contains(said, c.says) {
			t.Errorf("%s: status %d, %q, %q, want %q", c.line, status, said, errs, c.says)
			continue
		}
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		for _, has := range c.has {
			if !bytes.Contains(b, []byte(has)) {
				t.Errorf("%s: the graph has no %.40q", c.line, has)
			}
		}
	}
}

// Raw inputs of a model that has none, and inputs of a format that has no graph, are errors that
// say what to do.
func TestExportInputsRefused(t *testing.T) {
	dir, out := filepath.Join(t.TempDir(), "saved"), filepath.Join(t.TempDir(), "x")
	line := "train ctr-dnn --data synthetic --set data.train-limit=600 --set data.eval-limit=200 --epochs 1 --progress none --checkpoint " + dir
	if status, _, errs := command(t, line); status != 0 {
		t.Fatalf("status %d, %s", status, errs)
	}
	saved, err := checkpoint.Locate(dir)
	if err != nil {
		t.Fatal(err)
	}
	checkRefused(t, 1, "export "+saved+" --format onnx --inputs raw --out "+out, "--inputs raw: the data of ctr-dnn are neither a table nor images", "--inputs encoded")
	checkRefused(t, 2, "export "+dir+" --inputs raw --out "+out, "only --format onnx has a choice of inputs")
	checkRefused(t, 2, "export "+dir+" --format onnx --inputs row --out "+out, `--inputs "row" is not known`, "raw")
	if _, err := os.Stat(out); err == nil {
		t.Error("a refused export left a file")
	}
}
