package data

import (
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

// shardFiles writes shards 0.tar, 1.tar and so on, and says in which folder.
func shardFiles(t *testing.T, shards ...[]byte) string {
	t.Helper()
	dir := t.TempDir()
	for i, s := range shards {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.tar", i)), s, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Shards have the samples of a tree with the same images: the same values, augmented or not.
func TestShardsAreTheirImages(t *testing.T) {
	var files []string
	var pictures []images.Picture
	var labels []int32
	for i := range 4 {
		image := datatest.EncodeJPEG(datatest.Colourful(60+i, 50, uint64(i)))
		files = append(files, fmt.Sprintf("d.x/%03d.cls", i), fmt.Sprint(3-i), fmt.Sprintf("d.x/%03d.jpg", i), string(image))
		pictures, labels = append(pictures, images.Picture{Path: "x", Encoded: image}), append(labels, int32(3-i))
	}
	dir := shardFiles(t, datatest.Tar(t, files[:8]...), datatest.Tar(t, files[8:]...))
	c := Config{Dir: filepath.Join(dir, "{0..1}.tar"), EvalFile: filepath.Join(dir, "[1].tar"), ImageSize: 16, Threads: 3}
	if NameOf("images", c) != "shards" || NameOf("images", Config{Dir: filepath.Join(dir, "1.tar")}) != "shards" {
		t.Error("these are no shards")
	}
	s, err := Open("shards", c)
	if err != nil {
		t.Fatal(err)
	}
	if s.Train.Len() != 4 || s.Eval.Len() != 2 || s.Classes != 4 || len(s.Notes) != 2 {
		t.Errorf("%d and %d of %d classes, %q", s.Train.Len(), s.Eval.Len(), s.Classes, s.Notes)
	}
	twin := newEncoded(pictures, labels, 16, new(datafile.Skips))
	for _, d := range []Draw{{}, {Seed: 5, Epoch: 3, Augment: true}} {
		got, want := fill(t, s.Train, d, 3, 1, 2, 0), fill(t, twin, d, 3, 1, 2, 0)
		if !slices.Equal(got.Values, want.Values) || !slices.Equal(got.Labels, want.Labels) {
			t.Errorf("%+v: other values or labels than the images: %v", d, got.Labels)
		}
	}
	if s, err = Open("shards", Config{Dir: c.Dir, ImageSize: 16, Split: 0.5}); err != nil || s.Train.Len()+s.Eval.Len() != 4 {
		t.Errorf("%+v, %v", s, err)
	}
}

// Labels are what the best of their files says.
func TestLabelsOfShards(t *testing.T) {
	image := string(datatest.EncodeJPEG(datatest.Colourful(9, 9, 1)))
	dir := shardFiles(t, datatest.Tar(t,
		"a.txt", "dog\n", "a.png", image, "a.json", `{"label": "cat", "x": [1]}`,
		"b.jpg", image, "b.json", `{"cls": 7}`, "b.txt", "no", "c.txt", "ant", "c.jpg", image))
	s, err := Open("shards", Config{Dir: filepath.Join(dir, "0.tar"), EvalFile: filepath.Join(dir, "*.tar"), ImageSize: 8})
	if err != nil || !slices.Equal(s.Words, []string{"7", "ant", "cat"}) {
		t.Fatalf("%+v, %v", s, err)
	}
	if b := fill(t, s.Train, Draw{}, 0, 1, 2); !slices.Equal(b.Labels, []int32{2, 0, 1}) {
		t.Error(b.Labels)
	}
}

// What is wrong in a shard is an error with file and byte, or is left out if it may be.
func TestBadShards(t *testing.T) {
	image := string(datatest.EncodeJPEG(datatest.Colourful(9, 9, 1)))
	good := []string{"g.jpg", image, "g.cls", "1", "h.jpg", image, "h.cls", "0"}
	for want, files := range map[string][]string{
		"sample a has no label":                   {"a.jpg", image},
		"sample a has no image":                   {"a.cls", "1"},
		"b.jpeg: a second image":                  {"b.jpg", image, "b.jpeg", image, "b.cls", "0"},
		"0 bytes are no image":                    {"a.jpg", ""},
		"want a class of 1 to 256 bytes":          {"a.cls", " "},
		"no field label, cls, class or target":    {"a.json", "{}"},
		"a.json: invalid character":               {"a.json", "x"},
		"1048577 bytes are no label: want 104857": {"a.cls", strings.Repeat("1", images.MaxLabelText+1)},
	} {
		path := filepath.Join(shardFiles(t, datatest.Tar(t, append(slices.Clone(files), good...)...)), "0.tar")
		_, err := Open("shards", Config{Dir: path})
		var fault *datafile.FormatError
		if !errors.As(err, &fault) || fault.File != path || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if s, err := Open("shards", Config{Dir: path, SkipBad: 3}); err != nil || s.Train.Len()+s.Eval.Len() < 2 || s.skips.Count() == 0 {
			t.Errorf("%q is not left out: %v", want, err)
		}
	}
	for name, want := range map[string]string{"x{3..1}.tar": "want numbers such as", "none*.tar": "no file has such a name", "x.tar": "no such file", "{0..99999}{0..99999}.tar": "want numbers"} {
		if _, err := Open("shards", Config{Dir: filepath.Join(t.TempDir(), name)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

func FuzzShard(f *testing.F) {
	f.Add([]byte("a.cls"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(dir, "x.tar")
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
		all, err := images.IndexShards([]string{path}, 1, &datafile.Skips{Max: 3}, new(datafile.LeftOuts))
		for _, p := range all {
			if err == nil && (p.Size < 1 || p.At < 512 || p.At+p.Size > int64(len(content)) || p.Class == "") {
				t.Fatalf("%+v of %d bytes", p, len(content))
			}
		}
	})
}
