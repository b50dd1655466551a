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
		size := len(x.Values) / 20
		for i := range 20 {
			from := i%10*2 + i/10 // two of each class, one after the other
			if y.Labels[i] != int32(i%10) || x.Labels[from] != y.Labels[i] || !slices.Equal(x.Values[from*size:][:size], y.Values[i*size:][:size]) {
				t.Errorf("image %d, of class %d, is not the one that was at %d", i, y.Labels[i], from)
			}
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
	if _, err := ConvertCIFAR(from, to, 1, 0); err == nil || !strings.Contains(err.Error(), "data.max-bad-records") {
		t.Errorf("a bad image: %v", err)
	}
	if n, err := ConvertCIFAR(from, to, 1, 1); len(n) != 1 || n[0].Count != 1 || err != nil {
		t.Errorf("%v bad images left out, %v", n, err)
	}
}

// Classes are spread evenly, also where one is larger; such an order stays.
func TestDealt(t *testing.T) {
	got := dealt([]int32{0, 0, 0, 0, 1, 1, 2}, 4)
	if want := []int{0, 4, 1, 6, 2, 5, 3}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got = dealt([]int32{0, 1, 0, 2, 0, 1, 0}, 3); !slices.IsSorted(got) {
		t.Errorf("%v is another order", got)
	}
}
