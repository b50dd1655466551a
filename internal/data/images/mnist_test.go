package images

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/datatest"
)

// encode is the inverse of decodeIDX.
func encode(data []byte, dims ...uint32) []byte {
	out := []byte{0, 0, 8, byte(len(dims))}
	for _, d := range dims {
		out = binary.BigEndian.AppendUint32(out, d)
	}
	return append(out, data...)
}

// content is a small MNIST by file name.
func content() map[string][]byte {
	train, test := SyntheticMNIST(1, 7, 3)
	return map[string][]byte{
		TrainImages: encode(train.Pixels, 7, 28, 28), TrainLabels: encode(train.Labels, 7),
		TestImages: encode(test.Pixels, 3, 28, 28), TestLabels: encode(test.Labels, 3),
	}
}

func TestOpenMNIST(t *testing.T) {
	train, test := SyntheticMNIST(1, 7, 3)
	for _, gzipped := range []bool{false, true} {
		dir := t.TempDir()
		for name, data := range content() {
			if gzipped {
				name, data = name+".gz", datatest.Compress(data)
			}
			datatest.Write(t, dir, map[string][]byte{name: data})
		}
		gotTrain, gotTest, err := ReadMNIST(dir)
		if err != nil {
			t.Fatal(err)
		}
		for i, pair := range [][2]*Images{{gotTrain, train}, {gotTest, test}} {
			got, want := pair[0], pair[1]
			if got.N != want.N || got.Size() != 784 || got.Channels != 1 ||
				!bytes.Equal(got.Pixels, want.Pixels) || !bytes.Equal(got.Labels, want.Labels) {
				t.Errorf("gzipped %v: set %d differs", gzipped, i)
			}
		}
	}
}

// Faults in the content: name and offset are exact.
func TestOpenMNISTFaults(t *testing.T) {
	good := content()
	images, labels := good[TrainImages], good[TrainLabels]
	patch := func(data []byte, at int, with ...byte) []byte {
		out := bytes.Clone(data)
		copy(out[at:], with)
		return out
	}
	for _, c := range []struct {
		name, file string
		data       []byte
		offset     int64
		says       string
	}{
		{"magic of labels in images", TrainImages, patch(images, 3, 1), 0, "magic number 0x00000801, want 0x00000803"},
		{"element type", TrainLabels, patch(labels, 2, 13), 0, "magic number 0x00000d01"},
		{"empty", TrainLabels, nil, 0, "truncated"},
		{"header cut", TrainImages, images[:9], 9, "truncated: the content ends here, the header is to be 16 bytes long"},
		{"images cut", TrainImages, images[:len(images)-1], 5503, "truncated: the content ends here, the file is to be 5504"},
		{"labels cut", TrainLabels, labels[:10], 10, "truncated: the content ends here, the file is to be 15"},
		{"header only", TrainImages, images[:16], 16, "truncated"},
		{"trailing", TrainImages, append(bytes.Clone(images), 1), 5504, "trailing"},
		{"trailing labels", TrainLabels, append(bytes.Clone(labels), 1, 2), 15, "trailing"},
		{"label 10", TrainLabels, patch(labels, 11, 10), 11, "impossible label 10 of image 3"},
		{"no image", TrainImages, patch(images, 4, 0, 0, 0, 0), 4, "size 0"},
		{"more images than labels", TrainImages, patch(images, 7, 8), 4, "8 images, but"},
		{"a million labels", TrainLabels, patch(labels, 4, 0, 16, 0, 0), 15, "truncated"},
		{"four billion labels", TrainLabels, patch(labels, 4, 255, 255, 255, 255), 4, "impossible size 4294967295"},
		{"rows", TrainImages, patch(images, 11, 14), 8, "images of 14x28, want 28x28"},
		{"columns", TrainImages, patch(images, 15, 1), 12, "images of 28x1, want 28x28"},
		{"overflowing product", TrainImages, patch(images, 4, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255), 8, "impossible size"},
	} {
		for _, gzipped := range []bool{false, true} {
			if gzipped && c.name == "empty" {
				continue
			}
			files := content()
			file, data := c.file, c.data
			if gzipped {
				delete(files, file)
				file, data = file+".gz", datatest.Compress(data)
			}
			files[file] = data
			dir := t.TempDir()
			datatest.Write(t, dir, files)
			_, _, err := ReadMNIST(dir)
			offset, says := c.offset, c.says
			if c.name == "a million labels" && gzipped { // the length of the content is not known
				offset, says = 4, "impossible size: 1048584 bytes promised"
			}
			var f *datafile.FormatError
			if !errors.As(err, &f) {
				t.Errorf("%s, gzipped %v: %v", c.name, gzipped, err)
				continue
			}
			if f.File != filepath.Join(dir, file) || f.Offset != offset || !strings.Contains(f.Problem, says) {
				t.Errorf("%s, gzipped %v: got %v, want byte %d: …%s…", c.name, gzipped, err, offset, says)
			}
		}
	}
}

func TestOpenMNISTDamagedGzip(t *testing.T) {
	whole := datatest.Compress(content()[TrainImages])
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-6] ^= 1 // in the checksum
	for _, c := range []struct {
		name string
		data []byte
		says string
	}{
		{"not gzip", []byte("<html>no such page</html>"), "not a gzip file"},
		{"empty", nil, "truncated, or not a gzip file: it ends within"},
		{"cut", whole[:len(whole)/2], "truncated"},
		{"checksum", flipped, "checksum"},
		{"second member is rubbish", append(bytes.Clone(whole), "rubbish rubbish"...), "no gzip header here"},
	} {
		files := content()
		delete(files, TrainImages)
		files[TrainImages+".gz"] = c.data
		dir := t.TempDir()
		datatest.Write(t, dir, files)
		_, _, err := ReadMNIST(dir)
		var f *datafile.FormatError
		if !errors.As(err, &f) || !strings.Contains(f.Problem, c.says) {
			t.Errorf("%s: %v, want it to say %q", c.name, err, c.says)
		}
	}
}

func TestOpenMNISTMissing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	datatest.Write(t, dir, map[string][]byte{"file": nil})
	partial := t.TempDir()
	files := content()
	delete(files, TestLabels)
	datatest.Write(t, partial, files)
	for _, c := range []struct {
		dir  string
		says []string
	}{
		{filepath.Join(dir, "nowhere"), []string{"no folder", TrainImages}},
		{dir, []string{"neither " + TrainImages + " nor " + TrainImages + ".gz"}},
		{partial, []string{"neither " + TestLabels + " nor " + TestLabels + ".gz"}},
		{file, []string{"not a folder: want one with the four IDX files " + TrainImages}},
	} {
		_, _, err := ReadMNIST(c.dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) != (c.dir != file) {
			t.Errorf("%s: %v", c.dir, err)
			continue
		}
		for _, says := range append(c.says, c.dir, "`ringo data mnist --out", "data.dir synthetic") {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v\ndoes not say %q", c.dir, err, says)
			}
		}
	}
}

// The real set, where there is one.
func TestOpenMNISTReal(t *testing.T) {
	if testing.Short() {
		t.Skip("70,000 images, and one goroutine")
	}
	root := os.Getenv("RINGO_DATA")
	if root == "" {
		t.Skip("RINGO_DATA is not set: no real MNIST in its folder mnist to read")
	}
	train, test, err := ReadMNIST(filepath.Join(root, "mnist"))
	if err != nil {
		t.Fatal(err)
	}
	if train.N != 60000 || test.N != 10000 {
		t.Errorf("%d + %d images", train.N, test.N)
	}
	if got := train.Labels[:5]; !bytes.Equal(got, []byte{5, 0, 4, 1, 9}) {
		t.Errorf("first labels %v", got)
	}
}

func BenchmarkOpenMNIST(b *testing.B) {
	root := os.Getenv("RINGO_DATA")
	if root == "" {
		b.Skip("RINGO_DATA is not set")
	}
	for b.Loop() {
		if _, _, err := ReadMNIST(filepath.Join(root, "mnist")); err != nil {
			b.Fatal(err)
		}
	}
}

// Whatever the bytes, decoding ends in the same array or a named fault, and
// never holds more than the input could.
func FuzzDecodeIDX(f *testing.F) {
	f.Add(encode([]byte{1, 2, 3, 4, 5, 6}, 2, 3), 2, true)
	f.Add(encode([]byte{9}, 1), 1, true)
	f.Add(encode(nil, 1<<31, 1<<31, 4), 3, true)
	f.Add([]byte{0, 0, 8}, 1, true)
	f.Fuzz(func(t *testing.T, raw []byte, ndims int, exact bool) {
		ndims = 1 + ndims&3
		s := idxStream{bytes.NewReader(raw), "f", int64(len(raw)), exact}
		got, err := decodeIDX(s, ndims, func([]int) error { return nil })
		if err != nil {
			var fault *datafile.FormatError
			if !errors.As(err, &fault) || fault.File != "f" || fault.Offset < 0 || fault.Offset > int64(len(raw)) {
				t.Fatalf("%v in %d bytes", err, len(raw))
			}
			return
		}
		var dims []uint32
		for _, d := range got.dims {
			dims = append(dims, uint32(d))
		}
		if !bytes.Equal(encode(got.data, dims...), raw) {
			t.Fatal("not the same file when written again")
		}
	})
}
