package data

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/data/table"
)

// shops is a table of n rows of two numbers, a category and a class.
func shops(n int) []byte {
	var b bytes.Buffer
	b.WriteString("size,age,town,open\n")
	for i := range n {
		fmt.Fprintf(&b, "%d,%d.5,%s,%v\n", i, i%7, []string{"Bern", "Zug"}[i%2], []string{"no", "yes"}[i%3/2])
	}
	return b.Bytes()
}

// A table is split by the hash of each row's number, the same whether it is packed, and as Split would.
func TestTablesAreOpened(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string][]byte{"t.csv": shops(500), "t.csv.gz": compress(shops(500)), "t.tsv": bytes.ReplaceAll(shops(500), []byte(","), []byte("\t"))})
	var first *Set
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
	write(t, dir, map[string][]byte{"train.csv": shops(100), "test.csv": []byte("open,town,age,size,new\nyes,Basel,1,2,3\n")})
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
	write(t, dir, map[string][]byte{"t.csv": shops(100), "bad.csv": bad, "t.xls": nil, "cut.csv.gz": compress(shops(5000))[:500]})
	at := func(name string) string { return filepath.Join(dir, name) }
	for says, c := range map[string]Config{
		"want a name that ends in .arrow or .arrows or .csv or .feather or .parquet or .tsv": {Dir: at("t.xls")},
		"line 102: not as many fields":          {Dir: at("bad.csv")},
		`column "nix": there is no such column`: {Dir: at("t.csv"), Target: "nix"},
		"no such file":                          {Dir: at("none.csv")},
		"truncated: the file ends too early":    {Dir: at("cut.csv.gz")},
		"data.split":                            {Dir: at("t.csv"), EvalFile: at("t.csv"), Split: 0.5},
		"want a share above 0 and below 1":      {Dir: at("t.csv"), Split: 1.5},
		"data.train-file":                       {Dir: at("t.csv"), TrainFile: at("t.csv"), EvalFile: at("t.csv")},
	} {
		if _, err := Open("table", c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", c, err, says)
		}
	}
	s, err := Open("table", Config{Dir: at("bad.csv"), SkipBad: 1})
	if err != nil || s.skips.count() != 1 || s.Train.Len()+s.Eval.Len() != 101 {
		t.Errorf("one bad line may be skipped: %v", err)
	}
	if _, err := Open("mnist", Config{Dir: dir, Target: "x", Schema: table.Schema{"x": table.Label}, Split: 0.5}); err == nil || strings.Count(err.Error(), "it is for tables") != 3 {
		t.Errorf("settings of tables on another set: %v", err)
	}
}
