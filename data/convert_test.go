package data

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestConvertCIFAR(t *testing.T) {
	files := map[string][]byte{}
	for class := range 10 {
		for _, part := range []string{"train", "test"} {
			for i := range 2 {
				files[fmt.Sprintf("%s/class%d/%d.png", part, class, i)] = encodePNG(colourful(32, 32, uint64(10*class+i)))
			}
		}
	}
	from, to := writeTree(t, files), filepath.Join(t.TempDir(), "new")
	if _, err := ConvertCIFAR(from, to, 2, 0); err != nil {
		t.Fatal(err)
	}
	checkFolder(t, to, "batches.meta.txt", "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin")
	a, err := Open("cifar10", Config{Dir: from})
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open("cifar10", Config{Dir: to})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range [][2]Source{{a.Train, b.Train}, {a.Eval, b.Eval}} {
		x, y := all(t, s[0]), all(t, s[1])
		if x.N != 20 || !slices.Equal(x.Values, y.Values) || !slices.Equal(x.Labels, y.Labels) {
			t.Errorf("%d images became %d others", x.N, y.N)
		}
	}
	if _, err := ConvertCIFAR(from, to, 1, 0); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("again: %v", err)
	}
	if _, err := ConvertCIFAR(writeTree(t, pictures(32, 32)), t.TempDir(), 1, 0); err == nil || !strings.Contains(err.Error(), "3 classes") {
		t.Errorf("three classes: %v", err)
	}
	if _, err := ConvertCIFAR("/nowhere", t.TempDir(), 1, 0); err == nil {
		t.Error("from nowhere")
	}
	files["train/class3/0.png"] = []byte("no image")
	from, to = writeTree(t, files), filepath.Join(t.TempDir(), "less")
	if _, err := ConvertCIFAR(from, to, 1, 0); err == nil || !strings.Contains(err.Error(), "--skip-bad") {
		t.Errorf("a bad image: %v", err)
	}
	if n, err := ConvertCIFAR(from, to, 1, 1); n != 1 || err != nil {
		t.Errorf("%d bad images left out, %v", n, err)
	}
}
