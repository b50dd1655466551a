package data

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/datatest"
)

// shops is a table of n rows of two numbers, a category and a class.
func shops(n int) []byte {
	var b bytes.Buffer
	b.WriteString("size,age,town,open\n")
	for i := range n {
		fmt.Fprintf(&b, "%d,%d.5,%s,%v\n", i^1, i%7, []string{"Bern", "Zug"}[i%2], []string{"no", "yes"}[i%3/2])
	}
	return b.Bytes()
}

// A table is split by the hash of each row's number, the same whether it is packed, and as Split would.
func TestTablesAreOpened(t *testing.T) {
	dir := t.TempDir()
	datatest.Write(t, dir, map[string][]byte{"t.csv": shops(500), "t.csv.gz": datatest.Compress(shops(500)), "t.tsv": bytes.ReplaceAll(shops(500), []byte(","), []byte("\t"))})
	var first *Dataset
	for _, name := range []string{"t.csv", "t.csv.gz", "t.tsv"} {
		c := Config{Dir: filepath.Join(dir, name), Split: 0.2}
		if got := NameOf("mnist", c); got != "table" {
			t.Fatalf("%s is of %s", name, got)
		}
		if err := Find("table", c); err != nil {
			t.Fatal(err)
		}
		s, err := Open("table", c)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = s
		} else if s.Fingerprint() != first.Fingerprint() {
			t.Errorf("%s has other samples than t.csv", name)
		}
	}
	held := 0
	for i := range 500 {
		if Held(i, 0.2) {
			held++
		}
	}
	if first.Eval.Len() != held || first.Train.Len() != 500-held || first.Classes != 2 || !slices.Equal(first.Words, []string{"no", "yes"}) || first.Rows != 3 {
		t.Errorf("%d and %d samples, %d classes %q, %d rows", first.Train.Len(), first.Eval.Len(), first.Classes, first.Words, first.Rows)
	}
	if notes := strings.Join(first.Notes, "\n"); !strings.Contains(notes, `finds "open", one of 2 classes (no, yes)`) || !strings.Contains(notes, fmt.Sprintf("%d of 500 rows", held)) {
		t.Errorf("notes %q", notes)
	}
	if shape := first.Train.Shape(); !slices.Equal(shape.Values, []int{2}) || shape.IDs != 1 || shape.Labels != 1 || shape.Targets != 0 {
		t.Errorf("shape %+v", shape)
	}
}

// A file to evaluate on is encoded as the one to train on, and so are the rows of a run that goes on elsewhere.
func TestTablesKeepTheirEncoding(t *testing.T) {
	dir := t.TempDir()
	datatest.Write(t, dir, map[string][]byte{"train.csv": shops(100), "test.csv": []byte("open,town,age,size,new\nyes,Basel,1,2,3\n")})
	s, err := Open("table", Config{TrainFile: filepath.Join(dir, "train.csv"), EvalFile: filepath.Join(dir, "test.csv")})
	if err != nil {
		t.Fatal(err)
	}
	if s.Train.Len() != 100 || s.Eval.Len() != 1 {
		t.Fatalf("%d and %d samples", s.Train.Len(), s.Eval.Len())
	}
	var b Batch
	if err := s.Eval.Fill(&b, []int32{0}, Draw{}); err != nil || b.Labels[0] != 1 || b.IDs[0] != 0 {
		t.Errorf("%+v, %v: want class 1 and an unknown town", b, err)
	}
	again, err := Open("table", Config{Dir: filepath.Join(dir, "test.csv"), Encoder: s.Encoder, Split: 0.5})
	if err == nil || !strings.Contains(err.Error(), "both are needed") {
		t.Errorf("one row in two parts: %v, %v", again, err)
	}
}

func TestTablesAreRefused(t *testing.T) {
	dir := t.TempDir()
	bad := append(shops(100), "1,2\n3,4,Bern,yes\n"...)
	datatest.Write(t, dir, map[string][]byte{"t.csv": shops(100), "bad.csv": bad, "t.xls": nil, "cut.csv.gz": datatest.Compress(shops(5000))[:500]})
	at := func(name string) string { return filepath.Join(dir, name) }
	for says, c := range map[string]Config{
		"want a name that ends in .arrow, .arrows, .csv, .data, .feather, .parquet, .tsv or .txt; save it as CSV UTF-8": {Dir: at("t.xls")},
		"line 102: fields: 2: want 4":        {Dir: at("bad.csv")},
		`column "nix": no such column`:       {Dir: at("t.csv"), Target: "nix"},
		"no such file":                       {Dir: at("none.csv")},
		"truncated: the file ends too early": {Dir: at("cut.csv.gz")},
		"data.eval-split":                    {Dir: at("t.csv"), EvalFile: at("t.csv"), Split: 0.5},
		"want a share above 0 and below 1":   {Dir: at("t.csv"), Split: 1.5},
		"data.train-file":                    {Dir: at("t.csv"), TrainFile: at("t.csv"), EvalFile: at("t.csv")},
	} {
		if _, err := Open("table", c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", c, err, says)
		}
	}
	s, err := Open("table", Config{Dir: at("bad.csv"), SkipBad: 1})
	if err != nil || s.skips.Count() != 1 || s.Train.Len()+s.Eval.Len() != 101 {
		t.Errorf("one bad line may be skipped: %v", err)
	}
	if _, err := Open("mnist", Config{Dir: dir, Target: "x", Schema: table.Schema{"x": table.Label}, Split: 0.5}); err == nil || strings.Count(err.Error(), "it is for tables") != 3 {
		t.Errorf("settings of tables on another set: %v", err)
	}
}

// writeBelow writes files, some in folders below dir.
func writeBelow(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	datatest.Write(t, dir, files)
}

// A folder of part files is one table: in the order of names, without empty files, marks and
// checksums.
func TestPartFilesAreOneTable(t *testing.T) {
	dir := t.TempDir()
	lines := bytes.SplitAfter(shops(300), []byte("\n"))
	part := func(from, to int) []byte { return append(bytes.Clone(lines[0]), bytes.Join(lines[from:to], nil)...) }
	writeBelow(t, dir, map[string][]byte{
		"t.csv":                shops(300),
		"d/_SUCCESS":           {},
		"d/.part-00000.crc":    {1, 2},
		"d/part-00000.csv":     part(1, 101),
		"d/part-00001.csv":     lines[0],
		"d/part-00002.csv":     {},
		"d/part-00003.csv.gz":  datatest.Compress(part(101, 301)),
		"other/part-00000.csv": part(1, 101),
		"other/part-00001.csv": []byte("size,age,open\n1,2,no\n"),
		"two/train.csv":        part(1, 101),
		"two/test.csv":         part(101, 301),
		"mixed/a.csv":          part(1, 101),
		"mixed/a.doc":          {1},
		"below/year=1/a.csv":   part(1, 101),
		"none/part-0":          {},
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	one, err := Open("table", Config{Dir: at("t.csv")})
	if err != nil {
		t.Fatal(err)
	}
	parts, err := Open("table", Config{Dir: at("d")})
	if err != nil {
		t.Fatal(err)
	}
	if parts.Fingerprint() != one.Fingerprint() {
		t.Error("a folder of parts has other samples than the file")
	}
	for name, reports := range map[string]string{
		"other": "other/part-00001.csv: its columns are size, age, open, the columns of",
		"two":   "has files to train on and to evaluate on (test.csv, train.csv): name one of each with data.train-file and data.eval-file",
		"mixed": "mixed/a.doc is not a part of the table in folder",
		"below": "below/year=1 is a folder: the files of a table are in one folder",
		"none":  "has no table file",
	} {
		if got := NameOf("mnist", Config{Dir: at(name)}); got != "table" {
			t.Errorf("%s is of %s", name, got)
		}
		if _, err := Open("table", Config{Dir: at(name)}); err == nil || !strings.Contains(err.Error(), reports) {
			t.Errorf("%s: %v, want %s", name, err, reports)
		}
	}
}

// Files that are no table by their name are errors of tables with a remedy, and folders of other
// sets remain those sets.
func TestEndingsOfOtherFiles(t *testing.T) {
	dir := t.TempDir()
	writeBelow(t, dir, map[string][]byte{
		"a.data": shops(100), "a.txt": shops(100), "a.xlsx": {1}, "a.csv.zip": {1}, "a.jsonl": {1}, "a.h5": {1}, "a": {1},
		"photos/train/x/a.jpg": {1}, "photos/labels.csv": shops(5), "digits/train-images-idx3-ubyte.gz": {1}, "digits/notes.csv": {1}, "empty/a.md": {1},
	})
	for name, reports := range map[string]string{
		"a.xlsx": "; save it as CSV UTF-8 there", "a.csv.zip": "; unpack it", "a.jsonl": "; convert it, with pandas", "a.h5": "; export it as .csv or .parquet", "a": "want a name that ends in .arrow, .arrows, .csv",
	} {
		c := Config{Dir: filepath.Join(dir, name)}
		if got := NameOf("mnist", c); got != "table" {
			t.Errorf("%s is of %s", name, got)
		}
		if err := Find("table", c); err == nil || !strings.Contains(err.Error(), reports) {
			t.Errorf("%s: %v, want %s", name, err, reports)
		}
	}
	for _, name := range []string{"a.data", "a.txt"} {
		if s, err := Open(NameOf("mnist", Config{Dir: filepath.Join(dir, name)}), Config{Dir: filepath.Join(dir, name)}); err != nil || s.Classes != 2 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"photos", "digits", "empty", "not-there"} {
		if got := NameOf("mnist", Config{Dir: filepath.Join(dir, name)}); got != "mnist" {
			t.Errorf("%s is of %s", name, got)
		}
	}
}

// Rows that a table lacks a label in are bad, counted once however many passes are made.
func TestRowsWithoutLabelAreSkippedOnce(t *testing.T) {
	dir := t.TempDir()
	text := string(shops(300))
	text = strings.Replace(text, "Bern,yes\n", "Bern,\n", 2)
	text = strings.Replace(text, "Zug,no\n", "Zug\n", 1)
	datatest.Write(t, dir, map[string][]byte{"t.csv": []byte(text)})
	c := Config{Dir: filepath.Join(dir, "t.csv"), SkipBad: 3}
	s, err := Open("table", c)
	if err != nil {
		t.Fatal(err)
	}
	if s.skips.Count() != 3 || s.Train.Len()+s.Eval.Len() != 297 {
		t.Errorf("%d rows left out, %d and %d samples", s.skips.Count(), s.Train.Len(), s.Eval.Len())
	}
	c.SkipBad = 2
	if _, err = Open("table", c); err == nil || !strings.Contains(err.Error(), "2 more before it were left out") {
		t.Errorf("one too many: %v", err)
	}
}

// Values of categories that training has not seen are noted with their number.
func TestUnseenCategoriesAreNoted(t *testing.T) {
	dir := t.TempDir()
	datatest.Write(t, dir, map[string][]byte{"train.csv": shops(100), "test.csv": []byte("size,age,town,open\n1,2,Basel,yes\n1,2,Zug,no\n1,2,Genf,no\n")})
	s, err := Open("table", Config{TrainFile: filepath.Join(dir, "train.csv"), EvalFile: filepath.Join(dir, "test.csv")})
	if err != nil {
		t.Fatal(err)
	}
	if want := `column "town": in 2 of 3 rows to evaluate a value that training has not seen, which is treated as a missing one`; !slices.Contains(s.Notes, want) {
		t.Errorf("notes %q lack %q", s.Notes, want)
	}
}
