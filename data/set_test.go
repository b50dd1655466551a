package data

import (
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/datatest"
	"github.com/ringo-ml/ringo/internal/data/images"
)

// fill is Fill that must succeed.
func fill(t testing.TB, s Source, d Draw, idx ...int32) *Batch {
	t.Helper()
	b := new(Batch)
	if err := s.Fill(b, idx, d); err != nil {
		t.Fatal(err)
	}
	if shape := s.Shape(); b.N != len(idx) || len(b.Values) != b.N*shape.Size() || len(b.IDs) != b.N*shape.IDs || len(b.Labels) != b.N*shape.Labels {
		t.Fatalf("%d samples, %d values, %d ids, %d labels of shape %v", b.N, len(b.Values), len(b.IDs), len(b.Labels), shape)
	}
	return b
}

// checkReuse wants no allocation where the batch is large enough.
func checkReuse(t *testing.T, s Source, d Draw) {
	t.Helper()
	idx := []int32{0, int32(s.Len() - 1), int32(s.Len() / 2)}
	b := fill(t, s, d, idx...)
	if n := testing.AllocsPerRun(5, func() { s.Fill(b, idx, d) }); n != 0 {
		t.Errorf("Fill allocates %v times", n)
	}
}

// The source of MNIST gives its pixels as (x/255-0.1307)/0.3081.
func TestMNISTSet(t *testing.T) {
	set, err := Open("mnist", Config{Dir: Synthetic, Seed: 1, TrainLimit: 50, EvalLimit: 20})
	if err != nil {
		t.Fatal(err)
	}
	train, test := images.SyntheticMNIST(1, 50, 20)
	for _, c := range []struct {
		src Source
		im  *images.Images
	}{{set.Train, train}, {set.Eval, test}} {
		idx := []int32{3, 0, int32(c.im.N - 1)}
		var values []float32
		var labels []int32
		for _, n := range idx {
			labels = append(labels, int32(c.im.Labels[n]))
			for _, x := range c.im.Pixels[n*784 : (n+1)*784] {
				values = append(values, (float32(x)/255-0.1307)/0.3081)
			}
		}
		got := fill(t, c.src, Draw{Augment: true}, idx...)
		if c.src.Len() != c.im.N || !slices.Equal(got.Values, values) || !slices.Equal(got.Labels, labels) {
			t.Errorf("%d samples, not those of Images", c.src.Len())
		}
		if !slices.Equal(c.src.Shape().Values, []int{28, 28, 1}) {
			t.Errorf("shape %v", c.src.Shape())
		}
		checkReuse(t, c.src, Draw{})
	}
	if set.Name != "mnist" || set.Classes != 10 || set.skips.Count() != 0 || set.Streams {
		t.Errorf("%+v", set)
	}
}

func TestOpenMNISTSetFromFolder(t *testing.T) {
	dir := t.TempDir()
	datatest.Write(t, dir, content())
	cfg := Config{Dir: dir, TrainLimit: 5}
	if err := Find("mnist", cfg); err != nil {
		t.Fatal(err)
	}
	set, err := Open("mnist", cfg)
	if err != nil {
		t.Fatal(err)
	}
	if set.Train.Len() != 5 || set.Eval.Len() != 3 {
		t.Errorf("%d + %d samples", set.Train.Len(), set.Eval.Len())
	}
	all, err := Open("mnist", Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	made, err := Open("mnist", Config{Dir: Synthetic, Seed: 1, TrainLimit: 7, EvalLimit: 3})
	if err != nil {
		t.Fatal(err)
	}
	if all.Fingerprint() != made.Fingerprint() || all.Fingerprint() == set.Fingerprint() {
		t.Error("the fingerprint does not tell what is the same from what is not")
	}
	other, err := Open("mnist", Config{Dir: Synthetic, Seed: 2, TrainLimit: 7, EvalLimit: 3})
	if err != nil || other.Fingerprint() == made.Fingerprint() {
		t.Errorf("other labels, the same fingerprint (%v)", err)
	}
}

func TestOpenFaults(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		says []string
	}{
		{"nist", Config{SkipBad: -1}, []string{`"nist"`, "mnist", "no data: name the folder", "data.max-bad-records -1"}},
		{"mnist", Config{Dir: Synthetic, TrainFile: "x", Rows: 1, Vocabulary: 2}, []string{`"x"`, "data.table-rows 1", "Vocabulary 2"}},
		{"mnist", Config{TrainFile: "x", EvalFile: "y"}, []string{"mnist is a folder", `"x", "y"`, "data.dir alone"}},
		{"cifar10", Config{Dir: "/nowhere", EvalFile: "y"}, []string{"cifar10 is a folder", `"", "y"`}},
		{"text", Config{TrainFile: "/nowhere", EvalFile: "y"}, []string{"text: data.train-file ", "/nowhere"}},
		{"mnist", Config{Dir: "/nowhere"}, []string{"/nowhere"}},
	} {
		for _, err := range []error{Find(c.name, c.cfg), func() error { _, err := Open(c.name, c.cfg); return err }()} {
			for _, says := range c.says {
				if err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("%v\ndoes not say %q", err, says)
				}
			}
		}
	}
}

func TestHead(t *testing.T) {
	s := numbers{10, -1}
	if Head(s, 0) != Source(s) || Head(s, 10) != Source(s) {
		t.Error("the whole source is wrapped")
	}
	h := Head(s, 4)
	if h.Len() != 4 {
		t.Errorf("%d samples", h.Len())
	}
	if b := fill(t, h, Draw{}, 3, 1); b.Labels[0] != 3 || b.Labels[1] != 1 {
		t.Errorf("labels %v", b.Labels)
	}
	for _, i := range []int32{4, -1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("no panic at %d", i)
				}
			}()
			fill(t, h, Draw{}, i)
		}()
	}
}

// A limit of bad samples is refused for sets that have none to leave out.
func TestSkipsHaveAnEffect(t *testing.T) {
	for _, name := range []string{"mnist", "chars", "arrays"} {
		want := "data.max-bad-records 3 has no effect on the data set " + name
		if _, err := Open(name, Config{Dir: t.TempDir(), SkipBad: 3}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if err := Find(name, Config{Dir: t.TempDir(), SkipBad: 3}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	_, err := OpenInput(Description{Name: "arrays"}, InputConfig{Path: "a.npy", Batch: 1, SkipBad: 3})
	if err == nil || !strings.Contains(err.Error(), "data.max-bad-records 3 has no effect on arrays") {
		t.Errorf("rows to predict: %v", err)
	}
}
