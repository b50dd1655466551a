package data

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/datatest"
	"github.com/ringo-ml/ringo/internal/data/images"
)

// cifarFiles are a small CIFAR-10 in its binary form: 2 images per training
// file, 3 for evaluation.
func cifarFiles() map[string][]byte {
	files := map[string][]byte{}
	label := byte(0)
	content := datatest.Noise(13 * images.CIFARRecord)
	for n, name := range []string{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"} {
		for range 2 + n/images.CIFARTest {
			record := content[:images.CIFARRecord]
			content = content[images.CIFARRecord:]
			record[0] = label % 10
			label++
			files[name] = append(files[name], record...)
		}
	}
	return files
}

// all are the samples of a source in order.
func all(t testing.TB, s Source) *Batch {
	idx := make([]int32, s.Len())
	for i := range idx {
		idx[i] = int32(i)
	}
	return fill(t, s, Draw{}, idx...)
}

func TestCIFARBinary(t *testing.T) {
	files := cifarFiles()
	plain, below, packed, single := t.TempDir(), t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "cifar.tgz")
	datatest.Write(t, plain, files)
	if err := os.Mkdir(filepath.Join(below, images.CIFARFolder), 0o777); err != nil {
		t.Fatal(err)
	}
	datatest.Write(t, filepath.Join(below, images.CIFARFolder), files)
	archive := datatest.Compress(datatest.Pack(t, images.CIFARFolder+"/", files))
	datatest.Write(t, packed, map[string][]byte{"cifar-10-binary.tar.gz": archive})
	datatest.Write(t, filepath.Dir(single), map[string][]byte{"cifar.tgz": archive})
	for _, dir := range []string{plain, below, packed, single} {
		if err := Find("cifar10", Config{Dir: dir}); err != nil {
			t.Fatal(err)
		}
		set, err := Open("cifar10", Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if set.Train.Len() != 10 || set.Eval.Len() != 3 || set.Classes != 10 || set.Words[3] != "cat" {
			t.Fatalf("%s: %+v", dir, set)
		}
		record := files["data_batch_2.bin"][images.CIFARRecord:] // sample 3
		got := fill(t, set.Train, Draw{}, 3)
		mean, deviation := []float32{0.4914, 0.4822, 0.4465}, []float32{0.2470, 0.2435, 0.2616}
		for c := range 3 {
			for p := range images.CIFARPlane {
				if want := (float32(record[1+c*images.CIFARPlane+p])/255 - mean[c]) / deviation[c]; got.Values[3*p+c] != want {
					t.Fatalf("channel %d of pixel %d is %v, want %v", c, p, got.Values[3*p+c], want)
				}
			}
		}
		if labels := all(t, set.Eval).Labels; got.Labels[0] != 3 || !slices.Equal(labels, []int32{0, 1, 2}) {
			t.Errorf("labels %v and %v", got.Labels, labels)
		}
		checkReuse(t, set.Train, Draw{Augment: true})
	}
}

// The naive twin of pad, crop and flip.
func TestJitter(t *testing.T) {
	im := &images.Images{N: 3, Rows: 5, Cols: 7, Channels: 3, Pixels: datatest.Noise(3 * 105), Labels: make([]uint8, 3)}
	p := newPixels(im, images.CIFARStatistics())
	jittered := p.jittered(2)
	seen := map[string]bool{}
	for epoch := range 200 {
		d := Draw{Seed: 3, Epoch: epoch, Augment: true}
		got := fill(t, jittered, d, 2, 1)
		r := drawOf(d, 1)
		dy, dx, mirrored := r.Between(-2, 2), r.Between(-2, 2), r.Below(2) == 1
		seen[fmt.Sprint(dy, dx, mirrored)] = true
		for y := range 5 {
			for x := range 7 {
				sx, sy := x, y+dy
				if mirrored {
					sx = 6 - x
				}
				sx += dx
				for c := range 3 {
					var v uint8
					if sx >= 0 && sx < 7 && sy >= 0 && sy < 5 {
						v = im.Pixels[105+(sy*7+sx)*3+c]
					}
					if want := p.table[c][v]; got.Values[105+(y*7+x)*3+c] != want {
						t.Fatalf("epoch %d: (%d, %d) channel %d is %v, want %v", epoch, x, y, c, got.Values[105+(y*7+x)*3+c], want)
					}
				}
			}
		}
		// Alone or in a batch, the sample is the same.
		if alone := fill(t, jittered, d, 1); !slices.Equal(alone.Values, got.Values[105:]) {
			t.Fatal("the augmentation depends on the batch")
		}
	}
	if len(seen) < 48 { // of 50
		t.Errorf("only %d of 50 variants drawn", len(seen))
	}
}

func TestCIFARFaults(t *testing.T) {
	change := func(f func(files map[string][]byte)) map[string][]byte {
		files := cifarFiles()
		f(files)
		return files
	}
	cut := change(func(f map[string][]byte) { f["data_batch_4.bin"] = f["data_batch_4.bin"][:images.CIFARRecord+100] })
	label := change(func(f map[string][]byte) { f["data_batch_3.bin"][images.CIFARRecord] = 77 })
	gone := change(func(f map[string][]byte) { delete(f, "data_batch_5.bin") })
	empty := change(func(f map[string][]byte) { f["test_batch.bin"] = nil })
	for _, c := range []struct {
		name  string
		files map[string][]byte
		says  []string
	}{
		{"truncated record", cut, []string{"data_batch_4.bin", fmt.Sprintf("byte %d", images.CIFARRecord+100), "record 1", "100 of 3073"}},
		{"label", label, []string{"data_batch_3.bin", "byte 3073", "impossible label 77 of image 1", "data.max-bad-records"}},
		{"missing", gone, []string{"has no data_batch_5.bin", "ringo data cifar10"}},
		{"empty", empty, []string{"test_batch.bin", "truncated"}},
	} {
		plain, packed := t.TempDir(), t.TempDir()
		datatest.Write(t, plain, c.files)
		datatest.Write(t, packed, map[string][]byte{"c.tar.gz": datatest.Compress(datatest.Pack(t, "x/", c.files))})
		for _, dir := range []string{plain, packed} {
			_, err := Open("cifar10", Config{Dir: dir})
			for _, says := range c.says {
				if err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("%s: %v\ndoes not say %q", c.name, err, says)
				}
			}
		}
	}
	dir := t.TempDir()
	datatest.Write(t, dir, label)
	set, err := Open("cifar10", Config{Dir: dir, SkipBad: 1})
	if err != nil {
		t.Fatal(err)
	}
	if labels := all(t, set.Train).Labels; set.skips.Count() != 1 || !slices.Equal(labels, []int32{0, 1, 2, 3, 4, 6, 7, 8, 9}) {
		t.Errorf("%d skipped, left %v", set.skips.Count(), labels)
	}
}

// A cut or damaged archive is named, wherever it is cut.
func TestCutArchive(t *testing.T) {
	whole := datatest.Compress(datatest.Pack(t, images.CIFARFolder+"/", cifarFiles()))
	dir := t.TempDir()
	path := filepath.Join(dir, "cifar-10-binary.tar.gz")
	for _, n := range []int{0, 5, 1000, len(whole) / 2, len(whole) - 300, len(whole) - 1} {
		datatest.Write(t, dir, map[string][]byte{"cifar-10-binary.tar.gz": whole[:n]})
		_, err := Open("cifar10", Config{Dir: dir, SkipBad: 100})
		var fault *datafile.FormatError
		if !errors.As(err, &fault) || fault.File != path || !strings.Contains(err.Error(), "truncated") {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	broken := bytes.Clone(whole)
	broken[len(broken)-6] ^= 1
	datatest.Write(t, dir, map[string][]byte{"cifar-10-binary.tar.gz": broken})
	if _, err := Open("cifar10", Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("checksum: %v", err)
	}
}

func TestImageSetsMissing(t *testing.T) {
	empty, two, file := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "file.txt")
	datatest.Write(t, two, map[string][]byte{"a.tar.gz": nil, "b.tgz": nil})
	datatest.Write(t, filepath.Dir(file), map[string][]byte{"file.txt": nil})
	for _, name := range []string{"cifar10", "images"} {
		for _, c := range []struct{ dir, says string }{
			{"/nowhere", "no folder or archive"}, {empty, "holds no such set"}, {two, "2 archives"}, {file, "neither a folder nor"},
		} {
			_, err := Open(name, Config{Dir: c.dir})
			found := Find(name, Config{Dir: c.dir})
			if err == nil || found == nil || found.Error() != err.Error() || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.dir) {
				t.Errorf("%s: %v\ndoes not say %q; Find: %v", c.dir, err, c.says, found)
			}
			if c.dir != two && !strings.Contains(err.Error(), "data.dir synthetic") {
				t.Errorf("%v\nsays nothing to do", err)
			}
		}
	}
}

// The real images, where they are.
func TestCIFARReal(t *testing.T) {
	root := os.Getenv("RINGO_DATA")
	if root == "" {
		t.Skip("RINGO_DATA is not set: no tree of CIFAR-10 in its folder cifar10 to read")
	}
	set, err := Open("cifar10", Config{Dir: filepath.Join(root, "cifar10")})
	if err != nil {
		t.Fatal(err)
	}
	if set.Train.Len() != 50000 || set.Eval.Len() != 10000 || !slices.Equal(set.Words, images.CIFARNames()) {
		t.Errorf("%d + %d images of %q", set.Train.Len(), set.Eval.Len(), set.Words)
	}
	var sum, squares [3]float64 // over every 50th image: near 0 and 1 if normalised rightly
	n := 0
	for i := 0; i < set.Train.Len(); i += 50 {
		b := fill(t, set.Train, Draw{}, int32(i))
		if b.Labels[0] != int32(i/5000) {
			t.Fatalf("label %d of image %d", b.Labels[0], i)
		}
		for j, v := range b.Values {
			sum[j%3] += float64(v)
			squares[j%3] += float64(v) * float64(v)
		}
		n += images.CIFARPlane
	}
	for c := range 3 {
		if mean, square := sum[c]/float64(n), squares[c]/float64(n); mean < -0.05 || mean > 0.05 || square < 0.9 || square > 1.1 {
			t.Errorf("channel %d: mean %.3f, mean square %.3f", c, mean, square)
		}
	}
}
