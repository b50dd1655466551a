package data

import (
	"encoding/binary"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/datatest"
	"github.com/ringo-ml/ringo/internal/data/images"
)

// content is a small MNIST by file name.
func content() map[string][]byte {
	encode := func(data []byte, dims ...uint32) []byte {
		out := []byte{0, 0, 8, byte(len(dims))}
		for _, d := range dims {
			out = binary.BigEndian.AppendUint32(out, d)
		}
		return append(out, data...)
	}
	train, test := images.SyntheticMNIST(1, 7, 3)
	return map[string][]byte{
		images.TrainImages: encode(train.Pixels, 7, 28, 28), images.TrainLabels: encode(train.Labels, 7),
		images.TestImages: encode(test.Pixels, 3, 28, 28), images.TestLabels: encode(test.Labels, 3),
	}
}

// TestIDXFileIsNoTable answers one file of MNIST with the folder that mnist reads, whatever its
// name.
func TestIDXFileIsNoTable(t *testing.T) {
	dir := t.TempDir()
	pixels := content()[images.TrainImages]
	datatest.Write(t, dir, map[string][]byte{images.TrainImages: pixels, "images.bin": pixels, "images.gz": datatest.Compress(pixels), "other.bin": []byte("abc")})
	for name, want := range map[string]string{images.TrainImages: "mnist", "images.bin": "mnist", "images.gz": "mnist", "other.bin": "table", ".": "mnist"} {
		c := Config{Dir: filepath.Join(dir, name)}
		if got := NameOf("mnist", c); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		if name == "." || want == "table" {
			continue
		}
		if err := Find("mnist", c); err == nil || !strings.Contains(err.Error(), "want one with the four IDX files") || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", name, err)
		}
		if err := Find("table", c); err == nil || !strings.Contains(err.Error(), "it is an IDX file: `ringo train mnist --data "+dir) {
			t.Errorf("%s as a table: %v", name, err)
		}
	}
}
