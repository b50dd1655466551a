package train

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/weights"
)

// A table on servers is handed the rows of a file, each once by its number; what is excepted, or has rows of another length, is not.
func TestBeginRows(t *testing.T) {
	const n, dim = someRows + 5, 2
	data := make([]float32, n*dim)
	for i := range data {
		data[i] = float32(i)
	}
	path := filepath.Join(t.TempDir(), "w.safetensors")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(weights.Write(f, []weights.Tensor{{Name: "there", Shape: []int{n, dim}, Data: data}}, nil), f.Close()); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Start: Init{From: path}}
	cfg.Model.PyTorch = func(name string) string { return map[string]string{"here": "there"}[name] }
	rows := func(name string, dim int) (out []float32, err error) {
		err = cfg.BeginRows(schema.Sparse{Name: name, Dim: dim}, func(keys []uint64, weights []float32) error {
			for i, key := range keys {
				if key != uint64(len(out)/dim) {
					t.Fatalf("row %d comes after %d", key, len(out)/dim)
				}
				out = append(out, weights[i*dim:][:dim]...)
			}
			return nil
		})
		return out, err
	}
	if got, err := rows("here", dim); err != nil || !slices.Equal(got, data) {
		t.Errorf("%d values, %v", len(got), err)
	}
	if _, err := rows("here", 3); err == nil || !strings.Contains(err.Error(), "there: the file has [4101 2], the table has rows of 3") {
		t.Errorf("rows of another length: %v", err)
	}
	if got, err := rows("another", dim); err != nil || len(got) > 0 {
		t.Errorf("a table that the file lacks: %d values, %v", len(got), err)
	}
	for _, pattern := range []string{"her*", "there"} {
		cfg.Start.Except = []string{pattern}
		if got, err := rows("here", dim); err != nil || len(got) > 0 {
			t.Errorf("except %s: %d values, %v", pattern, len(got), err)
		}
	}
	cfg.Start = Init{From: path + "x"}
	if _, err := rows("here", dim); err == nil || !strings.Contains(err.Error(), path+"x") {
		t.Errorf("no file: %v", err)
	}
}
