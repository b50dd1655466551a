package data

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/datafile"
)

// encode is the inverse of decodeIDX.
func encode(data []byte, dims ...uint32) []byte {
	out := []byte{0, 0, 8, byte(len(dims))}
	for _, d := range dims {
		out = binary.BigEndian.AppendUint32(out, d)
	}
	return append(out, data...)
}

func compress(content []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(content)
	z.Close()
	return b.Bytes()
}

// content is a small MNIST by file name.
func content() map[string][]byte {
	train, test := SyntheticMNIST(1, 7, 3)
	return map[string][]byte{
		trainImages: encode(train.Pixels, 7, 28, 28), trainLabels: encode(train.Labels, 7),
		testImages: encode(test.Pixels, 3, 28, 28), testLabels: encode(test.Labels, 3),
	}
}

func write(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpenMNIST(t *testing.T) {
	train, test := SyntheticMNIST(1, 7, 3)
	for _, gzipped := range []bool{false, true} {
		dir := t.TempDir()
		for name, data := range content() {
			if gzipped {
				name, data = name+".gz", compress(data)
			}
			write(t, dir, map[string][]byte{name: data})
		}
		gotTrain, gotTest, err := openMNIST(dir)
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
	images, labels := good[trainImages], good[trainLabels]
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
		{"magic of labels in images", trainImages, patch(images, 3, 1), 0, "magic number 0x00000801, want 0x00000803"},
		{"element type", trainLabels, patch(labels, 2, 13), 0, "magic number 0x00000d01"},
		{"empty", trainLabels, nil, 0, "truncated"},
		{"header cut", trainImages, images[:9], 9, "truncated: the content ends here, the header is to be 16 bytes long"},
		{"images cut", trainImages, images[:len(images)-1], 5503, "truncated: the content ends here, the file is to be 5504"},
		{"labels cut", trainLabels, labels[:10], 10, "truncated: the content ends here, the file is to be 15"},
		{"header only", trainImages, images[:16], 16, "truncated"},
		{"trailing", trainImages, append(bytes.Clone(images), 1), 5504, "trailing"},
		{"trailing labels", trainLabels, append(bytes.Clone(labels), 1, 2), 15, "trailing"},
		{"label 10", trainLabels, patch(labels, 11, 10), 11, "impossible label 10 of image 3"},
		{"no image", trainImages, patch(images, 4, 0, 0, 0, 0), 4, "size 0"},
		{"more images than labels", trainImages, patch(images, 7, 8), 4, "8 images, but"},
		{"a million labels", trainLabels, patch(labels, 4, 0, 16, 0, 0), 15, "truncated"},
		{"four billion labels", trainLabels, patch(labels, 4, 255, 255, 255, 255), 4, "impossible size 4294967295"},
		{"rows", trainImages, patch(images, 11, 14), 8, "images of 14x28, want 28x28"},
		{"columns", trainImages, patch(images, 15, 1), 12, "images of 28x1, want 28x28"},
		{"overflowing product", trainImages, patch(images, 4, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255), 8, "impossible size"},
	} {
		for _, gzipped := range []bool{false, true} {
			if gzipped && c.name == "empty" {
				continue
			}
			files := content()
			file, data := c.file, c.data
			if gzipped {
				delete(files, file)
				file, data = file+".gz", compress(data)
			}
			files[file] = data
			dir := t.TempDir()
			write(t, dir, files)
			_, _, err := openMNIST(dir)
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
	whole := compress(content()[trainImages])
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
		delete(files, trainImages)
		files[trainImages+".gz"] = c.data
		dir := t.TempDir()
		write(t, dir, files)
		_, _, err := openMNIST(dir)
		var f *datafile.FormatError
		if !errors.As(err, &f) || !strings.Contains(f.Problem, c.says) {
			t.Errorf("%s: %v, want it to say %q", c.name, err, c.says)
		}
	}
}

func TestOpenMNISTMissing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	write(t, dir, map[string][]byte{"file": nil})
	partial := t.TempDir()
	files := content()
	delete(files, testLabels)
	write(t, partial, files)
	for _, c := range []struct {
		dir  string
		says []string
	}{
		{filepath.Join(dir, "nowhere"), []string{"no folder", trainImages}},
		{dir, []string{"neither " + trainImages + " nor " + trainImages + ".gz"}},
		{partial, []string{"neither " + testLabels + " nor " + testLabels + ".gz"}},
		{file, []string{"not a folder: want one with the four IDX files " + trainImages}},
	} {
		_, _, err := openMNIST(c.dir)
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

// TestIDXFileIsNoTable answers one file of MNIST with the folder that mnist reads, whatever its
// name.
func TestIDXFileIsNoTable(t *testing.T) {
	dir := t.TempDir()
	images := content()[trainImages]
	write(t, dir, map[string][]byte{trainImages: images, "images.bin": images, "images.gz": compress(images), "other.bin": []byte("abc")})
	for name, want := range map[string]string{trainImages: "mnist", "images.bin": "mnist", "images.gz": "mnist", "other.bin": "table", ".": "mnist"} {
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

// The real set, where there is one.
func TestOpenMNISTReal(t *testing.T) {
	if testing.Short() {
		t.Skip("70,000 images, and one goroutine")
	}
	root := os.Getenv("RINGO_DATA")
	if root == "" {
		t.Skip("RINGO_DATA is not set: no real MNIST in its folder mnist to read")
	}
	train, test, err := openMNIST(filepath.Join(root, "mnist"))
	if err != nil {
		t.Fatal(err)
	}
	if train.N != 60000 || test.N != 10000 {
		t.Errorf("%d + %d images", train.N, test.N)
	}
	if got := train.Labels[:5]; !bytes.Equal(got, []byte{5, 0, 4, 1, 9}) {
		t.Errorf("first labels %v", got)
	}
	for _, f := range MNISTFiles() {
		if err := f.verify(filepath.Join(root, "mnist", f.Name+".gz")); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkOpenMNIST(b *testing.B) {
	root := os.Getenv("RINGO_DATA")
	if root == "" {
		b.Skip("RINGO_DATA is not set")
	}
	for b.Loop() {
		if _, _, err := openMNIST(filepath.Join(root, "mnist")); err != nil {
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
