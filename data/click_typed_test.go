package data

import (
	"encoding/csv"
	"errors"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/datatest"
	"github.com/ringo-ml/ringo/internal/data/layout"
)

// typedTwin is a text of comma-separated lines as a table whose columns have types: those named in lists are lists, of what is between "|"
// or ";". Chunks have three rows.
type typedTwin struct {
	names []string
	lines [][]string
	lists string
}

func twinOf(t testing.TB, text, lists string) *typedTwin {
	t.Helper()
	lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return &typedTwin{lines[0], lines[1:], lists}
}

func (w *typedTwin) Name() string      { return "twin.parquet" }
func (w *typedTwin) Columns() []string { return w.names }
func (w *typedTwin) Scan([]int, func(error) error, func(*table.Chunk) error) error {
	return errors.ErrUnsupported
}

func (w *typedTwin) ScanText(want []int, visit func(*table.Chunk) error) error {
	for at := 0; at < len(w.lines); at += 3 {
		c := &table.Chunk{First: int64(at)}
		for _, n := range want {
			var out table.Vector
			for _, line := range w.lines[at:min(at+3, len(w.lines))] {
				values := []string{line[n]}
				if strings.Contains(w.lists, w.names[n]) {
					if values = strings.FieldsFunc(line[n], func(r rune) bool { return r == '|' || r == ';' }); values == nil {
						values = []string{}
					}
				}
				for _, v := range values {
					out.Text = append(out.Text, strings.ReplaceAll(strings.ReplaceAll(v, "<", "|"), ">", "")...)
					out.Ends = append(out.Ends, len(out.Text))
				}
				if strings.Contains(w.lists, w.names[n]) {
					out.Rows = append(out.Rows, len(out.Ends))
				}
			}
			c.Columns = append(c.Columns, out)
			c.N = min(3, len(w.lines)-at)
		}
		if err := visit(c); err != nil {
			return err
		}
	}
	return nil
}

// readTwin reads a twin's samples.
func readTwin(l *layout.Layout, in table.Reader, limit int, bad *datafile.Skips) (*clickPages, error) {
	f, err := clicks.LayoutFormat(l)
	if err != nil {
		return nil, err
	}
	out := newClicks(f.Shape())
	return out, f.RowsOf(in, bad, func(c *clicks.Chunk) bool {
		out.add(&c.Block.Rows, limit)
		return limit == 0 || out.n < limit
	})
}

// A table whose columns have types gives the samples of the same rows as text, bags as lists or as texts of several values, whatever the
// order of columns, and lists of one value where one is wanted.
func TestTypedIsAsText(t *testing.T) {
	l := layoutOf(t, shopLayout)
	want, err := readSlotted("shop.csv", strings.NewReader(shopText), l, 1, 0, new(datafile.Skips))
	if err != nil {
		t.Fatal(err)
	}
	for _, lists := range []string{"", "tags,seen,given", "tags,seen,given,item,price"} {
		for _, limit := range []int{0, 4, 2} {
			got, err := readTwin(l, twinOf(t, shopText, lists), limit, new(datafile.Skips))
			if err != nil || limit == 2 && got.Len() != 2 {
				t.Fatalf("lists %q: %d rows, %v", lists, got.Len(), err)
			}
			if limit != 2 && !reflect.DeepEqual(got.pages[0].Keys, want.pages[0].Keys) || limit != 2 && !reflect.DeepEqual(got.pages, want.pages) {
				t.Errorf("lists %q: %+v, want %+v", lists, got.pages, want.pages)
			}
		}
	}
	headless := layoutOf(t, "columns:\n  - {name: y, kind: label}\n  - {kind: ignore}\n  - {name: b, kind: bag, values: key}\n")
	if got, err := readTwin(headless, twinOf(t, "b,z,y\n1|2,x,1\n", "b"), 0, new(datafile.Skips)); err != nil || got.pages[0].Labels[0] != 1 || len(got.pages[0].Keys) != 2 {
		t.Errorf("%+v, %v: columns are found by name, though lines of the layout have no header", got, err)
	}
}

// A fault of a row is told with file, row and column, and such rows may be left out.
func TestTypedFaults(t *testing.T) {
	l := layoutOf(t, numberedLayout)
	for text, says := range map[string]string{
		"y,line,x,tags\n1,2,3,a\n0,4,5,b\n1,5,5,\n2,6,7,\n": `twin.parquet: row 3: column "y": "2": want a label of 0 or 1`,
		"y,line,x,tags\n1,two,3,a\n":                        `row 0: column "line": "two": want a key`,
		"y,line,x,tags\n1,,3,a\n,1,2,\n":                    `row 1: column "y": "": want a label`,
		"y,line,x,tags\n1,1,NaN,\n":                         `row 0: column "x": "NaN": want a number`,
		"y,line,x,tags\n1,1,1,a|>|b\n":                      `row 0: column "tags": an empty value in a list`,
		"y,line,x,tags\n1,1,1,ab<c\n":                       `row 0: column "tags": "ab|c": a value with "|" in it`,
		"y,line,x\n1,1,1\n":                                 `twin.parquet: there is no column "tags" of layout l.yaml`,
	} {
		if _, err := readTwin(l, twinOf(t, text, "tags"), 0, new(datafile.Skips)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
	if _, err := readTwin(l, twinOf(t, "y,line,x,tags\n1,3|4,1,\n", "line"), 0, new(datafile.Skips)); err == nil || !strings.Contains(err.Error(), `row 0: column "line": a list of 2 values: want one`) {
		t.Errorf("%v", err)
	}
	bad := &datafile.Skips{Max: 2}
	got, err := readTwin(l, twinOf(t, "y,line,x,tags\n7,2,3,a\n0,4,5,b\n1,x,5,\n1,6,7,c\n", "tags"), 0, bad)
	if err != nil || got.Len() != 2 || got.pages[0].Keys[0] != 4 || bad.Count() != 2 {
		t.Errorf("%+v, %d left out, %v", got, bad.Count(), err)
	}
}

// A binary that reads no Parquet says how to build one that does, and Parquet is not streamed; a folder's Parquet files are found.
func TestTypedFiles(t *testing.T) {
	dir := t.TempDir()
	datatest.Write(t, dir, map[string][]byte{"train.parquet": []byte("PAR1"), "test.parquet": []byte("PAR1"), "l.yaml": []byte(numberedLayout)})
	cfg := Config{Dir: dir, Layout: filepath.Join(dir, "l.yaml")}
	if _, err := Open("clicks", cfg); err == nil || !strings.Contains(err.Error(), "train.parquet: this binary reads no Parquet") {
		t.Errorf("%v", err)
	}
	if err := Find("clicks", cfg); err != nil {
		t.Error(err)
	}
	stream := ClickStreamConfig{Files: []string{filepath.Join(dir, "train.parquet")}, Layout: layoutOf(t, numberedLayout), Batch: 1}
	if err := stream.Validate(); err == nil || !strings.Contains(err.Error(), "read into memory, not streamed") {
		t.Errorf("%v", err)
	}
	if _, err := Open("criteo", Config{Dir: dir}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := eachTyped(&clicks.Format{}, "a.parquet", new(datafile.Skips), nil); err == nil || !strings.Contains(err.Error(), "--layout") {
		t.Error(err)
	}
}
