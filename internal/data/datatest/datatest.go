// Package datatest writes files of data sets for tests.
package datatest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/prng"
)

// Compress returns content as gzip.
func Compress(content []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(content)
	z.Close()
	return b.Bytes()
}

// Write writes files to a folder.
func Write(t testing.TB, dir string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// Noise returns n bytes that do not compress, the same in each call.
func Noise(n int) []byte {
	out := make([]byte, n)
	r := prng.New(1, 2, 3)
	for i := range out {
		out[i] = byte(r.Next())
	}
	return out
}

// Pack returns a .tar of files below a folder.
func Pack(t testing.TB, folder string, files map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	w.WriteHeader(&tar.Header{Name: folder, Typeflag: tar.TypeDir, Mode: 0o755})
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	slices.Reverse(names) // the set's order is its own
	for _, name := range names {
		w.WriteHeader(&tar.Header{Name: folder + name, Typeflag: tar.TypeReg, Size: int64(len(files[name])), Mode: 0o644})
		w.Write(files[name])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Colourful returns an image that stays distinct in PNG and in JPEG.
func Colourful(w, h int, seed uint64) *image.NRGBA {
	im := image.NewNRGBA(image.Rect(0, 0, w, h))
	r := prng.New(seed, 0, 0)
	base := [3]int{r.Below(200), r.Below(200), r.Below(200)}
	for y := range h {
		for x := range w {
			im.SetNRGBA(x, y, color.NRGBA{uint8(base[0] + x%50), uint8(base[1] + y%50), uint8(base[2] + r.Below(50)), 255})
		}
	}
	return im
}

// EncodePNG returns an image as PNG.
func EncodePNG(im image.Image) []byte {
	var b bytes.Buffer
	png.Encode(&b, im)
	return b.Bytes()
}

// EncodeJPEG returns an image as JPEG.
func EncodeJPEG(im image.Image) []byte {
	var b bytes.Buffer
	jpeg.Encode(&b, im, &jpeg.Options{Quality: 90})
	return b.Bytes()
}

// TreeFiles returns a tree of images of w x h, with files that are left out.
func TreeFiles(w, h int) map[string][]byte {
	files := map[string][]byte{"README.md": []byte("x"), "train/._a.jpg": []byte("x"), "train/notes.txt": nil, "train/dog/._1.png": []byte("x")}
	for i, name := range []string{
		"train/dog/1.png", "train/dog/deep/2.PNG", "train/ant/1.jpg", "train/ant/2.JPEG", "train/cow/1.png", "test/dog/1.png", "test/ant/9.jpg", "val/dog/3.png",
	} {
		im := Colourful(w, h, uint64(i))
		if strings.HasSuffix(strings.ToLower(name), ".png") {
			files[name] = EncodePNG(im)
		} else {
			files[name] = EncodeJPEG(im)
		}
	}
	return files
}

// WriteTree writes files, by their paths, to a new folder.
func WriteTree(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if os.MkdirAll(filepath.Dir(path), 0o777) != nil || os.WriteFile(path, content, 0o666) != nil {
			t.Fatalf("cannot write %s", path)
		}
	}
	return dir
}

// Tar returns a .tar of files, given as names and contents.
func Tar(t testing.TB, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for f := range slices.Chunk(files, 2) {
		if err := w.WriteHeader(&tar.Header{Name: f[0], Size: int64(len(f[1])), Mode: 0o666, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
