package images

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/datatest"
)

func TestConvertCIFAR(t *testing.T) {
	files := map[string][]byte{}
	for class := range 10 {
		for _, part := range []string{"train", "test"} {
			for i := range 2 {
				files[fmt.Sprintf("%s/class%d/%d.png", part, class, i)] = datatest.EncodePNG(datatest.Colourful(32, 32, uint64(10*class+i)))
			}
		}
	}
	from, to := datatest.WriteTree(t, files), filepath.Join(t.TempDir(), "new")
	if _, err := ConvertCIFAR(from, to, 2, 0); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(to)
	if err != nil || len(entries) != 7 {
		t.Fatalf("%v, %v", entries, err)
	}
	var sets [2]*CIFAR
	for i, dir := range []string{from, to} {
		if sets[i], err = ReadCIFAR(dir, [2]int{}, 2, new(datafile.Skips)); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range [][2]*Records{{sets[0].Train, sets[1].Train}, {sets[0].Eval, sets[1].Eval}} {
		x, y := s[0], s[1]
		size := len(x.Pix) / 20
		for i := range 20 {
			from := i%10*2 + i/10 // two of each class, one after the other
			if y.Labels[i] != int32(i%10) || x.Labels[from] != y.Labels[i] || !slices.Equal(x.Pix[from*size:][:size], y.Pix[i*size:][:size]) {
				t.Errorf("image %d, of class %d, is not the one that was at %d", i, y.Labels[i], from)
			}
		}
	}
	if _, err := ConvertCIFAR(from, to, 1, 0); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("again: %v", err)
	}
	if _, err := ConvertCIFAR(datatest.WriteTree(t, datatest.TreeFiles(32, 32)), t.TempDir(), 1, 0); err == nil || !strings.Contains(err.Error(), "3 classes") {
		t.Errorf("three classes: %v", err)
	}
	if _, err := ConvertCIFAR("/nowhere", t.TempDir(), 1, 0); err == nil {
		t.Error("from nowhere")
	}
	files["train/class3/0.png"] = []byte("no image")
	from, to = datatest.WriteTree(t, files), filepath.Join(t.TempDir(), "less")
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
