package data

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/datatest"
	"github.com/ringo-ml/ringo/internal/data/layout"
	"github.com/ringo-ml/ringo/internal/leakcheck"
)

const numberedLayout = `
separator: comma
header: true
columns:
  - {name: y, kind: label}
  - {name: line, kind: category, values: key}
  - {name: x, kind: number}
  - {name: tags, kind: bag}
`

// numberedFiles are files of numbered lines, the second one compressed and with its columns in another order, and what is in them.
func numberedFiles(t *testing.T, dir string, counts ...int) (files []string) {
	t.Helper()
	line := 0
	for i, n := range counts {
		text := []string{"\ufeffline,tags,more,y,x\r\n", "x,y,tags,line\n"}[i%2]
		for range n {
			bag := strings.TrimSuffix(strings.Repeat("t|", line%5), "|")
			if line%7 == 3 {
				bag = "\"a,\"\"b\"\"|c\""
			}
			text += fmt.Sprintf([]string{"%[1]d,%[2]s,-,%[3]d,%[4]v\r\n", "%[4]v,%[3]d,%[2]s,%[1]d\n"}[i%2], line, bag, line%2, float64(line)/4)
			line++
		}
		name, content := fmt.Sprintf("train_%d.csv", i), []byte(text)
		if i%2 == 1 {
			name, content = name+".gz", datatest.Compress(content)
		}
		datatest.Write(t, dir, map[string][]byte{name: content})
		files = append(files, filepath.Join(dir, name))
	}
	return files
}

// layoutRow is a sample as it was given out.
type layoutRow struct {
	label int32
	x     float32
	bags  [2][]uint64
}

// rowsOf are those of a batch, with their lines' numbers.
func rowsOf(t *testing.T, b *Batch, into map[uint64]layoutRow) (lines []uint64) {
	t.Helper()
	if err := b.Bags.validate(2, b.N); err != nil || len(b.Values) != b.N || len(b.Labels) != b.N {
		t.Fatalf("%v; %d numbers and %d labels of %d", err, len(b.Values), len(b.Labels), b.N)
	}
	for i := range b.N {
		line := b.Bags.Bag(0, b.N, i)
		if _, again := into[line[0]]; again {
			t.Errorf("line %d comes twice", line[0])
		}
		into[line[0]] = layoutRow{b.Labels[i], b.Values[i], [2][]uint64{slices.Clone(line), slices.Clone(b.Bags.Bag(1, b.N, i))}}
		lines = append(lines, line[0])
	}
	return lines
}

// What is streamed by a layout is what is read into memory, whatever the ranks, windows, blocks and threads, and a stream that goes on in the
// middle gives the same batches.
func TestLayoutStream(t *testing.T) {
	leakcheck.Check(t)
	dir := t.TempDir()
	l := layoutOf(t, numberedLayout)
	files := numberedFiles(t, dir, 301, 203, 96)
	want := map[uint64]layoutRow{}
	for _, path := range files {
		in, err := datafile.OpenText(path)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := readSlotted(path, in, l, 2, 0, new(datafile.Skips))
		if err != nil || in.Close() != nil {
			t.Fatal(err)
		}
		var b Batch
		idx := make([]int32, rows.Len())
		for i := range idx {
			idx[i] = int32(i)
		}
		if err := rows.Fill(&b, idx, Draw{}); err != nil {
			t.Fatal(err)
		}
		rowsOf(t, &b, want)
	}
	if len(want) != 600 || len(want[3].bags[1]) != 2 || len(want[5].bags[1]) != 0 || want[9].x != 2.25 {
		t.Fatalf("%d rows, %+v", len(want), want[3])
	}
	for _, c := range []ClickStreamConfig{
		{Batch: 7, Threads: 1}, {Batch: 10, Window: 50, Size: 2, BlockBytes: 1000, Threads: 3}, {Batch: 6, Window: 60, Size: 3, ByFile: true}, {Batch: 5, Window: 20, Interleave: 3, BlockBytes: 64},
	} {
		got := map[uint64]layoutRow{}
		for rank := range max(1, c.Size) {
			c.Rank, c.Files, c.Layout, c.Remainder, c.Seed = rank, files, l, true, 5
			s := openStream(t, c)
			if n, _, err := s.Rows(t.Context()); err != nil || n == 0 {
				t.Fatalf("%d rows, %v", n, err)
			}
			s.Start(1)
			var lines [][]uint64
			var places []StreamPosition
			for {
				places = append(places, s.Position())
				b, ok, err := s.Next()
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				lines = append(lines, rowsOf(t, b, got))
			}
			at := len(lines) / 2
			if err := s.Resume(places[at]); err != nil {
				t.Fatal(err)
			}
			if b, ok, err := s.Next(); err != nil || !ok || !slices.Equal(rowsOf(t, b, map[uint64]layoutRow{}), lines[at]) {
				t.Errorf("%+v: batch %d is another one after a resume (%v)", c, at, err)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v: %d rows, want %d, or they differ", c, len(got), len(want))
		}
	}
}

// A header that lacks a column, a bad line and a changed layout are refused with their place, and a bad line may be left out.
func TestLayoutStreamFaults(t *testing.T) {
	dir := t.TempDir()
	l := layoutOf(t, numberedLayout)
	files := numberedFiles(t, dir, 40)
	datatest.Write(t, dir, map[string][]byte{"none.csv": []byte("y,line,x\n1,2,3\n"), "bad.csv": []byte("y,line,x,tags\n1,2,3,a\n0,4,5,a||b\n1,5,5,\n"), "empty.csv": nil})
	for name, says := range map[string]string{
		"none.csv":  `none.csv: byte 0: line 1: there is no column "tags"`,
		"bad.csv":   `bad.csv: byte 28: line 3: column 4, tags: "a||b": an empty value`,
		"empty.csv": `empty.csv: byte 0: line 1: there is no column "y"`,
	} {
		s := openStream(t, ClickStreamConfig{Files: []string{filepath.Join(dir, name)}, Layout: l, Batch: 2})
		s.Start(1)
		if _, _, err := s.Next(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", name, err, says)
		}
	}
	s := openStream(t, ClickStreamConfig{Files: []string{filepath.Join(dir, "bad.csv")}, Layout: l, Batch: 2, SkipBad: 1})
	s.Start(1)
	if b, ok, err := s.Next(); !ok || err != nil || b.Bags.Keys[1] != 5 {
		t.Errorf("a bad line is not left out: %v", err)
	}
	if n, _, err := s.Rows(t.Context()); n != 2 || err != nil {
		t.Errorf("%d rows, %v", n, err)
	}
	place := s.Position()
	other := openStream(t, ClickStreamConfig{Files: files, Layout: layoutOf(t, numberedLayout+"  - {name: more, kind: category}\n"), Batch: 2})
	if err := other.Resume(place); err == nil || !strings.Contains(err.Error(), "other files or settings") {
		t.Errorf("%v", err)
	}
	for says, cfg := range map[string]ClickStreamConfig{
		"samples by a layout have bags": {Files: files, Layout: l, Batch: 2, Keys: true},
		"neither Rows":                  {Files: files, Batch: 2},
	} {
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// A bag of a million keys goes through a stream, and its memory is not kept for rows after it.
func TestLayoutStreamLargeBag(t *testing.T) {
	l := layoutOf(t, "columns:\n  - {name: y, kind: label}\n  - {name: b, kind: bag, values: key}\n")
	text := strings.Repeat("0\t1|2\n", 9) + "1\t" + strings.Repeat("18446744073709551615|", 999_999) + "0\n" + strings.Repeat("0\t\n", 40)
	path := filepath.Join(t.TempDir(), "large.tsv")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	s := openStream(t, ClickStreamConfig{Files: []string{path}, Layout: l, Batch: 10, Window: 10})
	s.Start(1)
	for i, want := range []int{1_000_018, 0, 0, 0, 0} {
		b, ok, err := s.Next()
		if !ok || err != nil || len(b.Bags.Keys) != want {
			t.Fatalf("batch %d: %d keys, %v", i, len(b.Bags.Keys), err)
		}
	}
	for _, page := range s.shelf.pages {
		for _, own := range page.KeysByRow {
			if cap(own) > clicks.SpareKeys {
				t.Errorf("memory of %d keys is kept for none", cap(own))
			}
		}
	}
}

// A set of a layout, streamed and read again to evaluate, is that of memory, and says in a description how its files lie.
func TestLayoutSet(t *testing.T) {
	dir := t.TempDir()
	numberedFiles(t, dir, 30, 20)
	datatest.Write(t, dir, map[string][]byte{"l.yaml": []byte(numberedLayout), "test.csv": []byte("tags,y,line,x\na|b,1,7,0.5\n,0,8,\n")})
	cfg := Config{Dir: dir, Layout: filepath.Join(dir, "l.yaml"), Stream: true}
	set, err := Open("clicks", cfg)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Stream, cfg.TrainFile = false, filepath.Join(dir, "train_0.csv"); len(set.Files) != 2 || set.Train != nil {
		t.Errorf("%q", set.Files)
	}
	held, err := Open("clicks", cfg)
	if err != nil || held.Train.Len() != 30 {
		t.Fatal(err)
	}
	var a, b Batch
	idx := []int32{1, 0}
	if err := set.Eval.Fill(&a, idx, Draw{}); err != nil {
		t.Fatal(err)
	}
	if err := held.Eval.Fill(&b, idx, Draw{}); err != nil || !reflect.DeepEqual(a.Bags, b.Bags) || !slices.Equal(a.Values, b.Values) || !slices.Equal(a.Labels, []int32{0, 1}) {
		t.Errorf("%+v and %+v, %v", a, b, err)
	}
	text, err := json.Marshal(set.Description())
	var d Description
	if err != nil || json.Unmarshal(text, &d) != nil || d.Layout.Name() != "l.yaml" || !reflect.DeepEqual(d.Layout.Columns, set.Layout.Columns) {
		t.Errorf("%s: %v", text, err)
	}
	if set.Meaning() != held.Meaning() || set.Fingerprint() == held.Fingerprint() {
		t.Error("what is streamed means something else, or looks like what is in memory")
	}
	in, err := OpenInput(d, InputConfig{Path: filepath.Join(dir, "test.csv"), Batch: 5, SkipBad: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if rows, ok, err := in.Next(); err != nil || !ok || rows.N != 2 || !slices.Equal(rows.Bags.Keys[:2], []uint64{7, 8}) || !slices.Equal(rows.Numbers, []int64{0, 1}) {
		t.Errorf("%+v, %v", rows, err)
	}
}

// Rows to predict may lack the label's column if the layout has a header, and need it without one.
func TestLayoutUnlabelled(t *testing.T) {
	l := layoutOf(t, numberedLayout)
	d := Description{Name: "clicks", Layout: l, Shape: shapeOf((&clicks.Format{Layout: l}).Shape())}
	in, err := OpenInput(d, InputConfig{Path: Stdin, Stdin: strings.NewReader("x,line,tags\n1,2,a\n,3,\n"), Batch: 5})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if rows, ok, err := in.Next(); err != nil || !ok || rows.N != 2 || !slices.Equal(rows.Values, []float32{1, 0}) || !slices.Equal(rows.Labels, []int32{0, 0}) {
		t.Errorf("%+v, %v", rows, err)
	}
	if _, err := readSlotted("f", strings.NewReader("x,line,tags\n1,2,a\n"), l, 1, 0, new(datafile.Skips)); err == nil || !strings.Contains(err.Error(), `no column "y"`) {
		t.Errorf("rows to train on without a label: %v", err)
	}
	if _, err := layout.Open("mlperf"); err != nil {
		t.Error(err)
	}
	l = layoutOf(t, "separator: comma\ncolumns:\n  - {name: y, kind: label}\n  - {name: u, kind: category}\n")
	for text, reports := range map[string]string{"1,a\n": "", "a\n": "line 1: the line ends after field 1 of 2", ",a\n": "want a label of 0 or 1"} {
		in, err := OpenInput(Description{Name: "clicks", Layout: l, Shape: shapeOf((&clicks.Format{Layout: l}).Shape())}, InputConfig{Path: Stdin, Stdin: strings.NewReader(text), Batch: 5})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := in.Next(); (err == nil) != (reports == "") || err != nil && !strings.Contains(err.Error(), reports) {
			t.Errorf("%q without a header: %v, want %q", text, err, reports)
		}
		in.Close()
	}
}
