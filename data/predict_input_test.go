package data

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/images"
	"github.com/ringo-ml/ringo/internal/leakcheck"
)

// taken is all that an input gives, a string for each row.
func taken(t *testing.T, in PredictInput) (rows []string, err error) {
	t.Helper()
	defer in.Close()
	for {
		r, ok, err := in.Next()
		if err != nil || !ok {
			return rows, err
		}
		for i, n := range r.Numbers {
			name := ""
			if len(r.Files) > 0 {
				name = " " + filepath.Base(r.Files[i])
			}
			rows = append(rows, fmt.Sprintf("%d%s", n, name))
		}
		if len(r.Numbers) != r.N {
			t.Errorf("%d numbers of %d rows", len(r.Numbers), r.N)
		}
	}
}

// drawPNG writes an image of one colour.
func drawPNG(t *testing.T, path string, w, h int, c color.Color) {
	t.Helper()
	im := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := range w * h {
		im.Set(i%w, i/w, c)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, im); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
}

// Images of a folder, however deep, come in the order of their paths; a bad one is left out where it may be, and nothing comes in its
// place; a model of grey digits sees them grey, at its size.
func TestInputOfImages(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"b/2.png", "a.png", "b/c/3.png", "d.png"} {
		drawPNG(t, filepath.Join(dir, name), 28+20*i, 28, color.White)
	}
	bad := filepath.Join(dir, "c.jpg")
	if err := os.WriteFile(bad, []byte("none"), 0o666); err != nil {
		t.Fatal(err)
	}
	digits := Description{Name: "mnist", Shape: Shape{Values: []int{28, 28, 1}, Labels: 1}}
	cfg := InputConfig{Path: dir, Batch: 2, Threads: 2}
	in, err := OpenInput(digits, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := taken(t, in); err == nil || !strings.Contains(err.Error(), bad) {
		t.Errorf("a bad image: %v", err)
	}
	cfg.SkipBad, cfg.Size = 1, 2
	for rank, want := range [][]string{{"0 a.png", "1 2.png", "4 d.png"}, {"2 3.png"}} {
		cfg.Rank = rank
		if in, err = OpenInput(digits, cfg); err != nil {
			t.Fatal(err)
		}
		if got, err := taken(t, in); err != nil || !slices.Equal(got, want) {
			t.Errorf("rank %d got %v, %v, want %v", rank, got, err, want)
		}
	}
	if in, err = OpenInput(digits, InputConfig{Path: filepath.Join(dir, "d.png"), Batch: 3}); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r, ok, err := in.Next()
	white := images.MNISTStatistics().Tables()[0][255]
	if err != nil || !ok || r.N != 1 || len(r.Values) != 28*28 || slices.ContainsFunc(r.Values, func(x float32) bool { return x != white }) {
		t.Errorf("%v, %v, %v", ok, err, r)
	}
	for path, want := range map[string]string{t.TempDir(): "has no image", filepath.Join(dir, "nowhere"): "no such file", Stdin: "name a file or folder"} {
		if _, err := OpenInput(digits, InputConfig{Path: path, Batch: 2, Stdin: strings.NewReader("")}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if _, err := OpenInput(Description{Name: "images", Shape: Shape{Values: []int{8, 8, 1}}}, InputConfig{Path: dir, Batch: 2}); err == nil {
		t.Error("grey values of a model of colours were taken")
	}
}

// TestShardsModelReadsImages: a model trained on shards or ImageNet reads image files, with the
// same pixels and statistics as a model trained on folders.
func TestShardsModelReadsImages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.png")
	drawPNG(t, path, 20, 20, color.RGBA{10, 20, 30, 255})
	var want []float32
	for _, name := range []string{"images", "imagenet", "shards"} {
		d := Description{Name: name, Shape: Shape{Values: []int{16, 16, 3}, Labels: 1}}
		in, err := OpenInput(d, InputConfig{Path: path, Batch: 1})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r, _, err := in.Next()
		if want == nil {
			want = slices.Clone(r.Values)
		}
		if err != nil || !slices.Equal(r.Values, want) {
			t.Errorf("%s: other values than of images, %v", name, err)
		}
		in.Close()
		mean, deviation, ok := d.Normalisation()
		if x := (float32(10)/255 - 0.485) / 0.229; !ok || len(mean) != 3 || len(deviation) != 3 || math.Abs(float64(want[0]-x)) > 1e-5 {
			t.Errorf("%s: normalisation %v, %v, %v; the first value is %v, want %v", name, mean, deviation, ok, want[0], x)
		}
	}
	if _, _, ok := (Description{Name: "criteo"}).Normalisation(); ok {
		t.Error("clicks have a normalisation")
	}
}

// An image that has the size already is seen as it is, by the statistics of its set.
func TestSmallImagesAreSeenWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.png")
	drawPNG(t, path, images.CIFARSide, images.CIFARSide, color.RGBA{10, 20, 30, 255})
	in, err := OpenInput(Description{Name: "cifar10", Shape: Shape{Values: []int{32, 32, 3}, Labels: 1}}, InputConfig{Path: path, Batch: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r, _, err := in.Next()
	table := images.CIFARStatistics().Tables()
	for i, x := range r.Values {
		if want := table[i%3][10+10*(i%3)]; err != nil || x != want {
			t.Fatalf("value %d is %v, want %v, %v", i, x, want, err)
		}
	}
	for _, c := range [][5]int{{32, 32, 0, 0, 32}, {40, 32, 4, 0, 32}, {3, 10, 0, 3, 3}} {
		if x, y, side := images.Middle(c[0], c[1]); [3]int{x, y, side} != [3]int(c[2:]) {
			t.Errorf("the middle of %v is %d, %d, %d", c, x, y, side)
		}
	}
	if got := images.Grey([]byte{255, 255, 255, 0, 0, 0, 255, 0, 0}); !slices.Equal(got, []byte{255, 0, 76}) {
		t.Errorf("grey of white, black and red: %v", got)
	}
}

// Ranks have every batch once, in turns, and none too many.
func TestBatchesInTurn(t *testing.T) {
	for _, n := range []int{1, 4, 5, 9, 24} {
		for size := 1; size <= 4; size++ {
			var got []int32
			for step, more := 0, true; more; step++ {
				more = false
				for rank := range size {
					s := roundRobin{n: n, batch: 4, rank: rank, size: size}
					s.Start(1)
					if step > s.Steps() {
						continue
					}
					s.Seek(step)
					if idx, ok := s.Next(); ok {
						got, more = append(got, idx...), true
					}
				}
			}
			want := make([]int32, n)
			for i := range want {
				want[i] = int32(i)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d samples on %d ranks: %v", n, size, got)
			}
		}
	}
}

// An input that is closed early ends its reader; its error comes at the end; what is not for a model is refused.
func TestInputsEnd(t *testing.T) {
	leakcheck.Check(t)
	in := newPushed(new(datafile.Skips), true, func(hand func(func(*Rows)) error) error {
		for {
			if err := hand(func(r *Rows) { r.N = 1 }); err != nil {
				return err
			}
		}
	})
	if r, ok, err := in.Next(); !ok || err != nil || r.N != 1 {
		t.Errorf("%v, %v, %v", r, ok, err)
	}
	in.Close()
	failing := newPushed(new(datafile.Skips), true, func(func(func(*Rows)) error) error { return io.ErrUnexpectedEOF })
	if _, ok, err := failing.Next(); ok || err != io.ErrUnexpectedEOF {
		t.Errorf("%v, %v", ok, err)
	}
	failing.Close()
	for _, c := range []struct {
		d    Description
		cfg  InputConfig
		want string
	}{
		{Description{Name: "criteo"}, InputConfig{Path: Stdin, Batch: 1}, "no standard input is given"},
		{Description{Name: "text"}, InputConfig{Path: "x", Batch: 1}, "trained on text"},
		{Description{}, InputConfig{Path: "x", Batch: 1}, "data of a program"},
		{Description{Name: "criteo"}, InputConfig{Path: "x"}, "batches of 0"},
		{Description{Name: "criteo"}, InputConfig{Path: "x", Batch: 1, Columns: []string{"a"}}, "only tables"},
		{Description{Name: "criteo"}, InputConfig{Path: "/nowhere", Batch: 1}, "/nowhere"},
	} {
		if _, err := OpenInput(c.d, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
	if _, err := (&rereader{opened: 2}).open(); err == nil {
		t.Error("a stream was opened three times")
	}
}

// Synthetic rows have the slots that the model was trained with; those of another shape are refused by name.
func TestInputOfSyntheticSlots(t *testing.T) {
	set, err := Open("criteo", Config{Dir: Synthetic, Rows: 100, Keys: true, TrainLimit: 1, EvalLimit: 1})
	if err != nil {
		t.Fatal(err)
	}
	cfg, d := InputConfig{Path: Synthetic, Batch: 2}, set.Description()
	in, err := OpenInput(d, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if rows, ok, err := in.Next(); err != nil || !ok || rows.N != 2 || len(rows.Bags.Offsets) != 2*clicks.CriteoSlots+1 {
		t.Errorf("%v, %v, %+v", ok, err, rows)
	}
	d.Shape.Slots = d.Shape.Slots[:3]
	if _, err := OpenInput(d, cfg); err == nil || !strings.Contains(err.Error(), "26 slots, the training samples of the model had [13], 0 and 3") {
		t.Errorf("another shape: %v", err)
	}
}
