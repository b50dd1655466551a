package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
		rows += fmt.Sprintf("%d,%s,%d\n", i, []string{"red", "green"}[i%2], i*i)
	}
	if err := os.WriteFile(table, []byte(rows), 0o666); err != nil {
		t.Fatal(err)
	}
	const few = " --set data.train-limit=600 --set data.eval-limit=200"
	for _, c := range []struct {
		line, says string
		has        []string
	}{
		{"mlp --data synthetic" + few, "the graph values [batch 1 28 28] -> logits [batch 10] of mlp", []string{"deviation\x12\x060.3081", "hidden.weight"}},
		{"mlp --batch 8 --data " + table, "the graph values [batch 1], ids [batch 1] -> prediction [batch 1] of mlp", []string{`"words":["green","red"]`, `"kind":"target"`}},
		{"ctr-dnn --data synthetic --lr 1e-30 --sync bsp --servers 2 --set data.table-rows=1000001 --set training.freeze=fc2.*" + few, "the graph values [batch 13], embedding [batch 260] -> logits [batch 2] of ctr-dnn", firstValues(t, "ctr-dnn")},
		{"mlp --data synthetic --lr 1e-30 --sync bsp --servers 2" + few, "the graph values [batch 1 28 28] -> logits [batch 10] of mlp", firstValues(t, "mlp")[1:]},
	} {
		dir, out := filepath.Join(t.TempDir(), "saved"), filepath.Join(t.TempDir(), "model.onnx")
		if status, _, errs := command(t, "train "+c.line+" --epochs 1 --progress none --checkpoint "+dir); status != 0 {
			t.Fatalf("%s: status %d, %s", c.line, status, errs)
		}
		status, said, errs := command(t, "export "+dir+" --format onnx --out "+out)
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
