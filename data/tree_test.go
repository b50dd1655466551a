package data

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"image"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/datatest"
	"github.com/ringo-ml/ringo/internal/data/images"
	"github.com/ringo-ml/ringo/internal/pathname"
)

func TestTreeFolderAndArchive(t *testing.T) {
	files := datatest.TreeFiles(32, 32)
	dir := datatest.WriteTree(t, files)
	packed := filepath.Join(t.TempDir(), "tree.tar.gz")
	plain := filepath.Join(t.TempDir(), "tree.tar")
	datatest.Write(t, filepath.Dir(packed), map[string][]byte{"tree.tar.gz": datatest.Compress(datatest.Pack(t, "some/where/", files))})
	datatest.Write(t, filepath.Dir(plain), map[string][]byte{"tree.tar": datatest.Pack(t, "./", files)})
	for _, name := range []string{"cifar10", "images"} {
		var first *Batch
		for _, path := range []string{dir, packed, plain} {
			set, err := Open(name, Config{Dir: path, ImageSize: 16, Threads: 3})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(set.Words, []string{"ant", "cow", "dog"}) || set.Classes != 3 {
				t.Errorf("classes %q", set.Words)
			}
			got := all(t, set.Train)
			if eval := all(t, set.Eval); !slices.Equal(got.Labels, []int32{0, 0, 1, 2, 2}) || !slices.Equal(eval.Labels, []int32{0, 2}) {
				t.Errorf("%s: labels %v and %v", path, got.Labels, eval.Labels)
			}
			if first == nil {
				first = got
			} else if !slices.Equal(first.Values, got.Values) {
				t.Errorf("%s %s: other pixels", name, path)
			}
		}
	}
	set, err := Open("cifar10", Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	im := datatest.Colourful(32, 32, 4) // train/cow/1.png
	got, table := fill(t, set.Train, Draw{}, 2), images.CIFARStatistics().Tables()
	for i := range images.CIFARPlane {
		c := im.NRGBAAt(i%32, i/32)
		if !slices.Equal(got.Values[3*i:][:3], []float32{table[0][c.R], table[1][c.G], table[2][c.B]}) {
			t.Fatalf("pixel %d", i)
		}
	}
}

func TestTreeFaults(t *testing.T) {
	good := datatest.EncodePNG(datatest.Colourful(32, 32, 1))
	huge := bytes.Clone(good)
	copy(huge[16:], []byte{0, 0xff, 0, 0, 0, 0xff, 0, 0}) // the header's size; its checksum is wrong then
	vast := datatest.EncodeJPEG(datatest.Colourful(32, 32, 1))
	copy(vast[bytes.Index(vast, []byte{0xff, 0xc0})+5:], []byte{0xff, 0xff, 0xff, 0xff})
	for _, c := range []struct {
		name    string
		content []byte
		says    []string
	}{
		{"vast JPEG", vast, []string{"impossible size 65535x65535"}},
		{"cut JPEG", datatest.EncodeJPEG(datatest.Colourful(32, 32, 1))[:500], []string{"truncated"}},
		{"cut PNG", good[:len(good)/2], []string{"not enough pixel data"}},
		{"text", []byte("hello there"), []string{"neither a JPEG nor a PNG", "68 65 6c"}},
		{"empty", nil, []string{"empty file"}},
		{"huge", huge, []string{"damaged"}},
	} {
		files := datatest.TreeFiles(32, 32)
		files["train/cow/1.png"] = c.content
		dir := datatest.WriteTree(t, files)
		packed := filepath.Join(t.TempDir(), "tree.tar.gz")
		datatest.Write(t, filepath.Dir(packed), map[string][]byte{"tree.tar.gz": datatest.Compress(datatest.Pack(t, "", files))})
		for _, path := range []string{dir, packed} {
			_, err := Open("cifar10", Config{Dir: path})
			set, lazy := Open("images", Config{Dir: path})
			if lazy != nil {
				t.Fatal(lazy)
			}
			lazy = set.Train.Fill(new(Batch), []int32{1, 2, 3}, Draw{Augment: true})
			for _, err := range []error{err, lazy} {
				for _, says := range append(c.says, path, "train/cow/1.png", "byte ", "data.max-bad-records") {
					if err == nil || !strings.Contains(err.Error(), says) {
						t.Errorf("%s: %v\ndoes not say %q", c.name, err, says)
					}
				}
			}
		}
		cifar, err := Open("cifar10", Config{Dir: dir, SkipBad: 1})
		if err != nil || cifar.skips.Count() != 1 || !slices.Equal(all(t, cifar.Train).Labels, []int32{0, 0, 2, 2}) {
			t.Errorf("%s: skipping: %v", c.name, err)
		}
		set, err := Open("images", Config{Dir: dir, SkipBad: 1, ImageSize: 8})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the next one stands in, and is counted once
			if b := fill(t, set.Train, Draw{}, 1, 2, 3); !slices.Equal(b.Labels, []int32{0, 2, 2}) || set.skips.Count() != 1 {
				t.Errorf("%s: labels %v, %d skipped", c.name, b.Labels, set.skips.Count())
			}
		}
	}
	other := datatest.TreeFiles(32, 32)
	other["train/cow/2.png"] = datatest.EncodePNG(datatest.Colourful(31, 32, 1))
	if _, err := Open("cifar10", Config{Dir: datatest.WriteTree(t, other)}); err == nil || !strings.Contains(err.Error(), "an image of 31x32, want 32x32") || !strings.Contains(err.Error(), "cow/2.png") {
		t.Errorf("wrong size: %v", err)
	}
	unknown := datatest.TreeFiles(32, 32)
	unknown["test/yak/1.png"] = good
	if _, err := Open("images", Config{Dir: datatest.WriteTree(t, unknown)}); err == nil || !strings.Contains(err.Error(), `class "yak"`) {
		t.Errorf("unknown class: %v", err)
	}
	lone := map[string][]byte{"train/a/1.png": good}
	if _, err := Open("images", Config{Dir: datatest.WriteTree(t, lone)}); err == nil || !strings.Contains(err.Error(), "1 image to train on in train/CLASS") {
		t.Errorf("no evaluation: %v", err)
	}
}

// An image's crop depends on seed, epoch and index, not on the batch; images
// of any size and colour go into one batch.
func TestEncodedAugmentation(t *testing.T) {
	files := datatest.TreeFiles(60, 40)
	grey := image.NewGray(image.Rect(0, 0, 33, 77))
	copy(grey.Pix, datatest.Noise(len(grey.Pix)))
	files["train/ant/3.jpg"] = datatest.EncodeJPEG(grey)
	files["train/cow/tiny.png"] = datatest.EncodePNG(datatest.Colourful(1, 1, 5))
	set, err := Open("images", Config{Dir: datatest.WriteTree(t, files), ImageSize: 24})
	if err != nil {
		t.Fatal(err)
	}
	size := 24 * 24 * 3
	d := Draw{Seed: 1, Epoch: 2, Augment: true}
	whole := fill(t, set.Train, d, 0, 1, 2, 3, 4, 5, 6)
	for i := range int32(7) {
		if alone := fill(t, set.Train, d, i); !slices.Equal(alone.Values, whole.Values[int(i)*size:][:size]) {
			t.Errorf("image %d depends on its batch", i)
		}
	}
	d.Epoch++
	if next := fill(t, set.Train, d, 0); slices.Equal(next.Values, whole.Values[:size]) {
		t.Error("the same crop in the next epoch")
	}
	d.Augment = false
	still := fill(t, set.Train, d, 0)
	d.Epoch++
	if !slices.Equal(still.Values, fill(t, set.Train, d, 0).Values) {
		t.Error("evaluation depends on the epoch")
	}
}

func BenchmarkDecodeImageNet(b *testing.B) { // one 500x375 JPEG to a 224x224 sample
	e := newEncoded([]images.Picture{{Path: "x", Class: "a", Encoded: datatest.EncodeJPEG(datatest.Colourful(500, 375, 1))}}, []int32{0}, 224, new(datafile.Skips))
	for _, augment := range []bool{true, false} {
		b.Run(map[bool]string{true: "training", false: "evaluation"}[augment], func(b *testing.B) {
			var batch Batch
			epoch := 0
			for b.Loop() {
				epoch++
				if err := e.Fill(&batch, []int32{0}, Draw{Epoch: epoch, Augment: augment}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFillCIFAR(b *testing.B) { // one augmented image out of memory
	set, err := Open("cifar10", Config{Dir: Synthetic, TrainLimit: 100, EvalLimit: 1})
	if err != nil {
		b.Fatal(err)
	}
	var batch Batch
	epoch := 0
	for b.Loop() {
		epoch++
		set.Train.Fill(&batch, []int32{7}, Draw{Epoch: epoch, Augment: true})
	}
}

// A limited tree has images of all classes as far as they go, and those it
// leaves out are not decoded.
func TestTreeLimit(t *testing.T) {
	for _, c := range []struct {
		set  string
		side int
	}{{"cifar10", 32}, {"images", 40}} {
		files := datatest.TreeFiles(c.side, c.side) // train: ant 1, ant 2, cow 1, dog 1, dog deep/2
		files["train/dog/1.png"] = []byte("no image")
		s, err := Open(c.set, Config{Dir: datatest.WriteTree(t, files), TrainLimit: 3, EvalLimit: 1, ImageSize: 8})
		if err != nil {
			t.Fatal(err)
		}
		var b Batch
		if err := s.Train.Fill(&b, []int32{0, 1, 2}, Draw{}); err != nil {
			t.Fatal(err)
		}
		if s.Train.Len() != 3 || s.Eval.Len() != 1 || s.Classes != 3 || !slices.Equal(b.Labels, []int32{0, 1, 2}) {
			t.Errorf("%s: %d + %d samples of %d classes, labels %v", c.set, s.Train.Len(), s.Eval.Len(), s.Classes, b.Labels)
		}
	}
}

// kinds are the lines about what a set leaves out, with sorted names: an archive has an order of
// its own.
func kinds(left []LeftOut) (lines []string) {
	for _, l := range left {
		l.Names = slices.Sorted(slices.Values(l.Names))
		lines = append(lines, l.String())
	}
	return lines
}

// TestTreeNamesWhatItLeavesOut names files, hidden folders and empty class folders, in a folder as
// in an archive.
func TestTreeNamesWhatItLeavesOut(t *testing.T) {
	files := datatest.TreeFiles(32, 32)
	for _, name := range []string{
		"train/ant/1.webp", "train/ant/2.WEBP", "test/dog/3.webp", "train/dog/x.bmp", "train/beside.jpg", "test/dog/LICENSE", "docs/a.webp", "train/yak/notes.md",
		"train/.ipynb_checkpoints/1-checkpoint.png", "train/.ipynb_checkpoints/2-checkpoint.png", "test/dog/.ipynb_checkpoints/3.png", "train/.DS_Store", ".git/x",
	} {
		files[name] = nil
	}
	delete(files, "train/notes.txt")
	packed := filepath.Join(t.TempDir(), "tree.tar.gz")
	datatest.Write(t, filepath.Dir(packed), map[string][]byte{"tree.tar.gz": datatest.Compress(datatest.Pack(t, "", files))})
	want := []string{
		"left out 1 .bmp file: train/dog/x.bmp",
		"left out 1 .jpg file outside of a class folder: train/beside.jpg",
		"left out 1 .md file: train/yak/notes.md",
		"left out 3 .webp files: test/dog/3.webp; train/ant/1.webp; train/ant/2.WEBP",
		"left out 1 class folder without an image: train/yak",
		"left out 1 file without an ending: test/dog/LICENSE",
		"left out 3 hidden files: train/.DS_Store; train/._a.jpg; train/dog/._1.png",
		"left out 2 hidden folders: test/dog/.ipynb_checkpoints; train/.ipynb_checkpoints",
	}
	notes := []string{"evaluating on the images in test, not on the 1 in val", "1 class of train without an image in test: cow"}
	dir := datatest.WriteTree(t, files)
	for _, name := range []string{"cifar10", "images"} {
		for _, path := range []string{dir, packed} {
			set, err := Open(name, Config{Dir: path})
			if err != nil || !slices.Equal(kinds(set.LeftOut()), want) || !slices.Equal(set.Notes, notes) || !slices.Equal(set.Words, []string{"ant", "cow", "dog"}) {
				t.Errorf("%s of %s: %q, %q, classes %q, %v", name, path, kinds(set.LeftOut()), set.Notes, set.Words, err)
			}
		}
	}
	one := map[string][]byte{"train/a/1.webp": nil}
	if _, err := Open("images", Config{Dir: datatest.WriteTree(t, one)}); err == nil || !strings.Contains(err.Error(), "left out 1 .webp file: train/a/1.webp") {
		t.Errorf("%v", err)
	}
	image := datatest.EncodePNG(datatest.Colourful(8, 8, 1))
	plain := map[string][]byte{"train/a/1.png": image, "train/b/1.png": image, "val/a/1.png": image, "val/b/1.png": image}
	if set, err := Open("images", Config{Dir: datatest.WriteTree(t, plain)}); err != nil || set.Notes != nil || set.LeftOut() != nil {
		t.Errorf("nothing left out: %q, %v, %v", set.Notes, set.LeftOut(), err)
	}
}

// TestTreeFollowsLinks reads a linked class folder, and leaves out links to a folder that they are
// in and empty folders.
func TestTreeFollowsLinks(t *testing.T) {
	good := datatest.EncodePNG(datatest.Colourful(8, 8, 1))
	elsewhere := datatest.WriteTree(t, map[string][]byte{"1.png": good, "2.png": good})
	dir := datatest.WriteTree(t, map[string][]byte{"train/a/1.png": good, "val/a/1.png": good, "val/linked/1.png": good})
	if err := errors.Join(os.Symlink(elsewhere, filepath.Join(dir, "train/linked")), os.Symlink("..", filepath.Join(dir, "train/a/up")),
		os.Symlink("/nowhere", filepath.Join(dir, "train/a/README")), os.Mkdir(filepath.Join(dir, "train/none"), 0o777)); err != nil {
		t.Fatal(err)
	}
	set, err := Open("images", Config{Dir: dir, ImageSize: 8})
	want := []string{
		"left out 1 class folder without an image: train/none", "left out 1 file without an ending: train/a/README",
		"left out 1 link to a folder that it is in: train/a/up",
	}
	if err != nil || set.Train.Len() != 3 || !slices.Equal(set.Words, []string{"a", "linked"}) || !slices.Equal(kinds(set.LeftOut()), want) {
		t.Fatalf("%v, %v, %q", set, err, kinds(set.LeftOut()))
	}
	fill(t, set.Train, Draw{}, 0, 1, 2)
}

// TestArchiveNamesLinksAndEmptyFolders counts entries of an archive that have no content of their
// own.
func TestArchiveNamesLinksAndEmptyFolders(t *testing.T) {
	good := datatest.EncodePNG(datatest.Colourful(8, 8, 1))
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{
		{Name: "x/train/", Typeflag: tar.TypeDir}, {Name: "x/train/a/", Typeflag: tar.TypeDir}, {Name: "x/train/b/", Typeflag: tar.TypeDir},
		{Name: "x/train/a/1.png", Typeflag: tar.TypeReg, Size: int64(len(good))}, {Name: "x/train/c/1.png", Typeflag: tar.TypeReg, Size: int64(len(good))}, {Name: "x/val/a/1.png", Typeflag: tar.TypeReg, Size: int64(len(good))},
		{Name: "x/train/a/2.png", Typeflag: tar.TypeLink, Linkname: "x/train/a/1.png"}, {Name: "x/train/a/3.png", Typeflag: tar.TypeSymlink, Linkname: "1.png"},
		{Name: "x/train/.hid/", Typeflag: tar.TypeDir}, {Name: "x/README", Typeflag: tar.TypeSymlink, Linkname: "y"},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			w.Write(good)
		}
	}
	w.Close()
	path := filepath.Join(t.TempDir(), "x.tar")
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	set, err := Open("images", Config{Dir: path, ImageSize: 8})
	want := []string{
		"left out 1 class folder without an image: train/b", "left out 1 hidden folder: train/.hid", "left out 2 links in an archive: train/a/2.png; train/a/3.png",
	}
	if err != nil || set.Train.Len() != 2 || !slices.Equal(kinds(set.LeftOut()), want) {
		t.Fatalf("%v: %q", err, kinds(set.LeftOut()))
	}
}

// TestVerifyIsTheSameForAnyRanks leaves out the same images, of all of which one rank decodes each,
// for 1, 2 and 4 ranks.
func TestVerifyIsTheSameForAnyRanks(t *testing.T) {
	files := datatest.TreeFiles(16, 16)
	files["train/ant/0.png"], files["train/dog/0.jpg"], files["test/dog/0.png"] = nil, []byte("text"), files["train/dog/1.png"][:60]
	dir := datatest.WriteTree(t, files)
	for _, n := range []int{1, 2, 4} {
		for _, most := range []int{3, 2} {
			sets, parts := make([]*Dataset, n), make([][]byte, n)
			for r := range n { // what each rank has found
				set, err := Open("images", Config{Dir: dir, ImageSize: 8, SkipBad: most})
				if err != nil {
					t.Fatal(err)
				}
				sets[r] = set
				_ = set.Verify(true, r, n, func(own []byte) ([][]byte, error) { parts[r] = own; return nil, errors.New("later") })
			}
			for r, set := range sets {
				err := set.Verify(true, r, n, func([]byte) ([][]byte, error) { return parts, nil })
				if most == 2 {
					if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "test/dog/0.png")) || !strings.Contains(err.Error(), "2 more before it") {
						t.Errorf("%d ranks, more than 2: %v", n, err)
					}
					continue
				}
				left := set.LeftOut()
				if bad := left[len(left)-1]; err != nil || bad.Kind != BadSample || bad.Count != 3 || len(bad.Names) != 3 || !strings.Contains(bad.Names[0], "train/ant/0.png: byte 0: empty") {
					t.Fatalf("%d ranks: %v, %v", n, err, left)
				}
				if train, eval := all(t, set.Train).Labels, all(t, set.Eval).Labels; !slices.Equal(train, []int32{0, 0, 1, 2, 2}) || !slices.Equal(eval, []int32{0, 2}) {
					t.Errorf("%d ranks: labels %v and %v", n, train, eval)
				}
				if set.Fingerprint() != sets[0].Fingerprint() {
					t.Errorf("%d ranks: rank %d has another set", n, r)
				}
			}
		}
	}
}

// TestVerifiedSetEndsWithLaterFault ends with an error if an image breaks after it was checked.
func TestVerifiedSetEndsWithLaterFault(t *testing.T) {
	dir := datatest.WriteTree(t, datatest.TreeFiles(16, 16))
	set, err := Open("images", Config{Dir: dir, ImageSize: 8, SkipBad: 9})
	if err = errors.Join(err, set.Verify(true, 0, 1, nil), os.WriteFile(filepath.Join(dir, "train/cow/1.png"), nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	if err := set.Train.Fill(new(Batch), []int32{0, 1, 2}, Draw{}); err == nil || !strings.Contains(err.Error(), "cow/1.png") || !strings.Contains(err.Error(), "before the first step") {
		t.Errorf("%v", err)
	}
}

// A pipe in a tree is a bad image, which may be skipped, and is not waited for; a file
// too large to be one is not read.
func TestTreeWithWhatIsNoFile(t *testing.T) {
	for _, name := range []string{"cifar10", "images"} {
		dir := datatest.WriteTree(t, datatest.TreeFiles(32, 32))
		pipe, huge := filepath.Join(dir, "train/ant/0.png"), filepath.Join(dir, "train/ant/00.png")
		if err := syscall.Mkfifo(pipe, 0o666); err != nil {
			t.Fatal(err)
		}
		if os.WriteFile(huge, nil, 0o666) != nil || os.Truncate(huge, images.MaxEntry+1) != nil {
			t.Fatal("no file with a hole")
		}
		read := func(skip int) (int, error) {
			set, err := Open(name, Config{Dir: dir, SkipBad: skip})
			if err != nil {
				return 0, err
			}
			for i := range set.Train.Len() {
				if err := set.Train.Fill(new(Batch), []int32{int32(i)}, Draw{}); err != nil {
					return 0, err
				}
			}
			return set.skips.Count(), nil
		}
		if n, err := read(2); n != 2 || err != nil {
			t.Errorf("%s: %d left out, %v", name, n, err)
		}
		if _, err := read(1); !errors.Is(err, pathname.ErrNotRegular) && !strings.Contains(err.Error(), huge) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestImageFoldersAreSplitByPath holds out a share of a folder without an evaluation part, the same
// images if others are added or the folder train is left out, and each image in one of the folds.
func TestImageFoldersAreSplitByPath(t *testing.T) {
	good := datatest.EncodePNG(datatest.Colourful(8, 8, 1))
	few, more := map[string][]byte{}, map[string][]byte{}
	for class := range 3 {
		for i := range 40 {
			path := fmt.Sprintf("c%d/%d.png", class, i)
			if few[path], more[path] = good, good; i%2 == 0 {
				more[fmt.Sprintf("c%d/new/%d.png", class, i)] = good
			}
		}
	}
	more["b/1.png"], more["d/1.png"] = good, good
	open := func(files map[string][]byte, below string, cfg Config) (train, eval []string, set *Dataset) {
		t.Helper()
		all := map[string][]byte{}
		for path, content := range files {
			all[below+path] = content
		}
		cfg.Dir, cfg.ImageSize = datatest.WriteTree(t, all), 8
		set, err := Open("images", cfg)
		if err != nil {
			t.Fatal(err)
		}
		keys := func(src Source) (out []string) {
			for _, p := range src.(*encoded).Pictures {
				out = append(out, p.Key)
			}
			return out
		}
		return keys(set.Train), keys(set.Eval), set
	}
	train, eval, set := open(few, "train/", Config{Split: 0.2})
	if len(train)+len(eval) != 120 || len(eval) < 12 || len(eval) > 36 || !slices.Equal(set.Words, []string{"c0", "c1", "c2"}) ||
		!slices.Contains(set.Notes, fmt.Sprintf("held out for evaluation: %d of 120 images (data.eval-split 0.2)", len(eval))) {
		t.Fatalf("%d and %d images, %q", len(train), len(eval), set.Notes)
	}
	if in, out, _ := open(few, "", Config{Split: 0.2}); !slices.Equal(in, train) || !slices.Equal(out, eval) {
		t.Error("without the folder train the split differs")
	}
	in, out, set := open(more, "train/", Config{Split: 0.2})
	for _, key := range train {
		if !slices.Contains(in, key) {
			t.Errorf("%s was a training image", key)
		}
	}
	for _, key := range eval {
		if !slices.Contains(out, key) {
			t.Errorf("%s was held out", key)
		}
	}
	if !slices.Equal(set.Words, []string{"b", "c0", "c1", "c2", "d"}) || !strings.Contains(strings.Join(set.Notes, "\n"), "of train without an image in the held-out images: ") {
		t.Errorf("classes %q, %q", set.Words, set.Notes)
	}
	var all []string
	for fold := range 4 {
		in, out, _ := open(few, "", Config{Folds: 4, Fold: fold})
		if all = append(all, out...); len(in)+len(out) != 120 {
			t.Errorf("fold %d: %d and %d images", fold, len(in), len(out))
		}
	}
	if slices.Sort(all); !slices.Equal(all, slices.Sorted(maps.Keys(few))) {
		t.Errorf("folds evaluate on %d images: %q", len(all), all)
	}
	dir := datatest.WriteTree(t, map[string][]byte{"train/a/1.png": good, "val/a/1.png": good})
	if _, err := Open("images", Config{Dir: dir, Split: 0.2}); err == nil || !strings.Contains(err.Error(), "data.eval-split 0.2: no samples are held out, because "+dir+" has images to evaluate on in val") {
		t.Errorf("%v", err)
	}
}

// TestArchiveComesBeforeClassFolders reads the archive of a folder that also has a folder with an
// image, and rejects an archive of class folders with the remedy.
func TestArchiveComesBeforeClassFolders(t *testing.T) {
	good := datatest.EncodePNG(datatest.Colourful(8, 8, 1))
	parts := map[string][]byte{"train/a/1.png": good, "train/b/1.png": good, "val/a/1.png": good}
	classes := map[string][]byte{"a/1.png": good, "a/2.png": good, "b/1.png": good}
	dir := datatest.WriteTree(t, map[string][]byte{
		"preview/a.png": good, "set.tgz": datatest.Compress(datatest.Pack(t, "", parts)),
	})
	set, err := Open("images", Config{Dir: dir, ImageSize: 8})
	if err != nil || !slices.Equal(set.Words, []string{"a", "b"}) || set.Train.Len() != 2 {
		t.Errorf("%+v, %v", set, err)
	}
	dir = datatest.WriteTree(t, map[string][]byte{"set.tgz": datatest.Compress(datatest.Pack(t, "", classes))})
	if _, err := Open("images", Config{Dir: filepath.Join(dir, "set.tgz")}); err == nil || !strings.Contains(err.Error(), "unpack an archive of CLASS/NAME.jpg, and name the folder") {
		t.Errorf("%v", err)
	}
	deep := map[string][]byte{"a/x/1.png": good, "a/x/2.png": good, "b/x/1.png": good}
	if _, err := Open("images", Config{Dir: datatest.WriteTree(t, deep)}); err == nil || !strings.Contains(err.Error(), "holds no such set") {
		t.Errorf("images two levels down: %v", err)
	}
}
