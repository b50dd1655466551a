package data

import (
	"archive/zip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/leakcheck"
)

// asked are the samples of all ranks' batches, by number.
func asked(t *testing.T, d Description, c InputConfig) map[int64]Batch {
	t.Helper()
	found := map[int64]Batch{}
	for c.Rank = 0; c.Rank < max(1, c.Size); c.Rank++ {
		in, err := OpenInput(d, c)
		if err != nil {
			t.Fatalf("%s: %v", c.Path, err)
		}
		for {
			rows, ok, err := in.Next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			for i, n := range rows.Numbers {
				s := rows.At(d.Shape, i)
				if _, twice := found[n]; twice {
					t.Errorf("row %d came twice", n)
				}
				found[n] = Batch{Values: slices.Clone(s.Values), Labels: slices.Clone(s.Labels), Targets: slices.Clone(s.Targets)}
			}
		}
		in.Close()
	}
	return found
}

// Samples that are to be predicted have the values that the same array has in training, be it in a .npz with what is to be found or
// alone, under the name of the schema, as the evaluation part, or in a .npy; whatever the batch and the number of ranks.
func TestInputOfArrays(t *testing.T) {
	leakcheck.Check(t)
	pixels, labels := counting(4*3*5*5), []byte{0, 1, 2, 1}
	trained := npz(t, zip.Store, "x", "|u1", "(4, 3, 5, 5)", pixels, "y", "|u1", "(4,)", labels)
	set, err := Open("arrays", Config{Dir: trained, Split: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	d := set.Description()
	var want Batch
	if err := set.Train.(subset).Source.Fill(&want, []int32{0, 1, 2, 3}, Draw{}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	alone := filepath.Join(dir, "any name.npy")
	for path, content := range map[string][]byte{alone: npyFile("|u1", "(4, 3, 5, 5)", pixels), filepath.Join(dir, "x.npy"): []byte("not looked at")} {
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	other := make([]byte, len(pixels))
	for name, c := range map[string]InputConfig{
		"as trained on": {Path: trained},
		"packed":        {Path: npz(t, zip.Deflate, "images", "|u1", "(4, 3, 5, 5)", pixels)},
		"one array":     {Path: npz(t, zip.Store, "whatever", "|u1", "(4, 3, 5, 5)", pixels)},
		"schema":        {Path: npz(t, zip.Store, "x", "|u1", "(4, 3, 5, 5)", other, "pixels", "|u1", "(4, 3, 5, 5)", pixels), Schema: table.Schema{"pixels": table.Number}},
		"second part":   {Path: npz(t, zip.Store, "x_train", "|u1", "(4, 3, 5, 5)", other, "x_test", "|u1", "(4, 3, 5, 5)", pixels, "words", "<U1", "(1,)", labels)},
		"alone":         {Path: alone},
	} {
		for size := 1; size <= 3; size++ {
			c.Batch, c.Size, c.Threads = 5-size, size, size
			found := asked(t, d, c)
			for n, got := range found {
				to := want.At(d.Shape, int(n))
				if !slices.Equal(got.Values, to.Values) || !slices.Equal(got.Labels, []int32{0}) {
					t.Errorf("%s, %d ranks: row %d is %v, labels %v, want %v", name, size, n, got.Values[:4], got.Labels, to.Values[:4])
				}
			}
			if len(found) != 4 {
				t.Errorf("%s, %d ranks: %d rows", name, size, len(found))
			}
		}
	}
}

// Numbers to be found are zeros where there are none, and a model of rows of one number takes them.
func TestInputOfArraysForARegression(t *testing.T) {
	d := Description{Name: "arrays", Shape: Shape{Values: []int{1}, Targets: 2}}
	found := asked(t, d, InputConfig{Path: npz(t, zip.Store, "features", "<i2", "(3,)", []byte{1, 0, 2, 0, 255, 255}), Batch: 2})
	if len(found) != 3 || found[2].Values[0] != -1 || !slices.Equal(found[0].Targets, []float32{0, 0}) {
		t.Errorf("%v", found)
	}
}

// What no model takes, what is not told apart and what is damaged is an error with the file, and no file stays open.
func TestInputOfArraysRefuses(t *testing.T) {
	rows := counting(6)
	d := Description{Name: "arrays", Shape: Shape{Values: []int{2}, Labels: 1}}
	whole, err := os.ReadFile(npz(t, zip.Deflate, "x", "|u1", "(3, 2)", rows))
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut.npz")
	if err := os.WriteFile(cut, whole[:len(whole)-9], 0o666); err != nil {
		t.Fatal(err)
	}
	for want, path := range map[string]string{
		"samples of [3] values, but the model takes [2]": npz(t, zip.Store, "x", "|u1", "(2, 3)", rows),
		"the file has a, b": npz(t, zip.Store, "a", "|u1", "(3, 2)", rows, "b", "|u1", "(3, 2)", rows),
		"the file has none": npz(t, zip.Store),
		"both x (3 x 2, uint8) and data (3 x 2, uint8) could": npz(t, zip.Store, "x", "|u1", "(3, 2)", rows, "data", "|u1", "(3, 2)", rows),
		"want 1 to":           npz(t, zip.Store, "x", "|u1", "(0, 2)", []byte(nil)),
		"or one that was cut": cut,
		"impossible shape":    npz(t, zip.Store, "x", "<f8", "(2305843009213693951, 2)", rows),
	} {
		if _, err := OpenInput(d, InputConfig{Path: path, Batch: 2}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := OpenInput(d, InputConfig{Path: filepath.Join(t.TempDir(), "no.npz"), Batch: 2}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := OpenInput(d, InputConfig{Path: Stdin, Stdin: strings.NewReader(""), Batch: 2}); err == nil || !strings.Contains(err.Error(), "name a file") {
		t.Error(err)
	}
	d.Shape.IDs = 1
	if _, err := OpenInput(d, InputConfig{Path: npz(t, zip.Store, "x", "|u1", "(3, 2)", rows), Batch: 2}); err == nil || !strings.Contains(err.Error(), "more of a sample") {
		t.Error(err)
	}
}
