package layout

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Every ready layout is right, and what the issue of each is known for is in it.
func TestReady(t *testing.T) {
	for name, want := range map[string][2]int{"criteo": {13, 26}, "avazu": {0, 22}, "movielens": {0, 4}, "mlperf": {13, 26}} {
		l, err := Open(name)
		if err != nil {
			t.Error(err)
			continue
		}
		numbers, slots := l.Of(func(c Column) bool { return c.Kind == Number }), l.Of(Column.Slotted)
		if len(numbers) != want[0] || len(slots) != want[1] || l.Name() != name {
			t.Errorf("%s: %d numbers, %d slots, want %v", l.Name(), len(numbers), len(slots), want)
		}
	}
	l, err := Open("movielens")
	if slots := l.Of(Column.Slotted); err != nil || slots[2].Name != "movieId" || slots[3].Name != "history" || slots[2].Table != slots[3].Table {
		t.Errorf("the candidate is not before the sequence: %+v", slots)
	}
	if names := Names(); !slices.Equal(names, []string{"avazu", "criteo", "mlperf", "movielens"}) {
		t.Errorf("%v", names)
	}
}

// Zero values stand for what is usual, and columns of several have a number behind the name.
func TestRead(t *testing.T) {
	l, err := Read("x", strings.NewReader("columns:\n  - {name: y, kind: label}\n  - {name: c, times: 2, kind: category, table: both}\n  - {kind: ignore, times: 3}\n  - {name: b, kind: bag}\n"))
	if err != nil {
		t.Fatal(err)
	}
	c := l.Columns
	if l.Separator != "\t" || len(c) != 7 || c[1].Name != "c1" || c[2].Name != "c2" || c[2].Table != "both" || c[2].Values != Text || c[6].Separator != "|" || c[6].Table != "b" {
		t.Errorf("%+v", l)
	}
}

func TestReadFaults(t *testing.T) {
	for text, says := range map[string]string{
		"":           "0 columns are labels",
		"columns: 3": "x: ",
		"columns:\n  - {name: y, kind: label, shape: 3}":                                               `x: line 2: an entry of field "columns" has no field "shape"; the fields are name, kind, times`,
		"columns:\n  - {name: y, kind: label}\n  - {name: n, kind: number}":                            "no column is a category",
		"columns:\n  - {name: y, kind: label}\n  - {name: n, kind: tag}":                               `"n" is to be "tag"`,
		"columns:\n  - {name: y, kind: label}\n  - {name: y, kind: category}":                          `"y" is there twice`,
		"columns:\n  - {kind: label}":                                                                  "column 1 has no name",
		"separator: '||'\ncolumns:\n  - {name: y, kind: label}":                                        `separator "||"`,
		"separator: '|'\ncolumns:\n  - {name: b, kind: bag}":                                           `column "b", separator "|"`,
		"columns:\n  - {name: b, kind: category, separator: '|'}":                                      `column "b", separator`,
		"columns:\n  - {name: b, kind: category, transform: log}":                                      `transform "log"`,
		"columns:\n  - {name: b, kind: number, values: hex}":                                           `values "hex"`,
		"columns:\n  - {name: b, kind: category, from: 3}":                                             "from is for a label",
		"columns:\n  - {name: b, kind: category, values: key}\n  - {name: c, kind: bag, table: b}":     `"c" has text values of table "b", and a column before it has key`,
		"columns:\n  - {name: b, kind: category, times: 5000}":                                         "4096 columns at most",
		"columns:\n  - {kind: ignore}\n  - {name: b, kind: category, times: 9223372036854775807}":      "9223372036854775807 times",
		"columns:\n  - {name: b, kind: category, values: hex, times: 255}\n  - {name: y, kind: label}": "255 tables",
		"columns:\n  - {name: b, kind: category, make: {most: 3}}":                                     `x: line 2: column "b", make: values 0, zipf 0, least 0, most 3:`,
		"columns:\n  - {name: b, kind: bag, make: {least: 4, most: 3}}":                                "from least to most",
		"columns:\n  - {name: b, kind: number, make: {values: 3}}":                                     "make: values 3",
		"separator: comma\nvalues: key\n":                                                              `x: line 2: the layout has no field "values"; the fields are separator, header, columns`,
		"separater: comma\n":                                                                           `line 1: the layout has no field "separater" (did you mean "separator"?)`,
		"columns: 3\n":                                                                                 `line 1: field "columns": "3": want a list`,
		"columns:\n  - y\n":                                                                            `line 2: an entry of field "columns": "y": want fields name, kind,`,
		"header: maybe\n":                                                                              `line 1: field "header": "maybe": want true or false`,
		"columns:\n  - {name: [a], kind: label}":                                                       `line 2: field "name": want a text`,
		"columns:\n  - {name: y, kind: label}\n  - {name: b, kind: bag, make: {most: 3.5}}":            `line 3: field "most": "3.5": want a whole number`,
		"header: true\nheader: true\n":                                                                 `field "header" is given twice`,
		"columns: &x\n  - *x\n":                                                                        "anchors and aliases are not read",
		"header: true\n---\nheader: true\n":                                                            "a second document",
		"columns:\n  - {name: y, kind: label}\n  - {name: b, kind: tag}":                               `x: line 3: column "b" is to be "tag"`,
		strings.Repeat("#", maxBytes+1):                                                                "longer than",
	} {
		if _, err := Read("x", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.80q: %v, want %q", text, err, says)
		}
	}
	if _, err := Read("100%d.yaml", strings.NewReader("")); err == nil || !strings.HasPrefix(err.Error(), "100%d.yaml: 0 columns") {
		t.Errorf("%v", err)
	}
	if _, err := Open("criteoo"); err == nil || !strings.Contains(err.Error(), "criteo") {
		t.Errorf("%v", err)
	}
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(file, []byte("columns:\n  - {name: y, kind: label}\n  - {name: c, kind: category}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if l, err := Open(file); err != nil || l.Name() != file {
		t.Error(err)
	}
}

// No text makes Read panic, and what it accepts has places for all its columns.
func FuzzRead(f *testing.F) {
	f.Add("columns:\n  - {name: y, kind: label}\n  - {name: c, times: 2, kind: category}\n")
	f.Fuzz(func(t *testing.T, text string) {
		if l, err := Read("x", strings.NewReader(text)); err == nil && (len(l.Columns) > maxColumns || len(l.Separator) != 1) {
			t.Fatalf("%+v", l)
		}
	})
}

// A layout that was saved is the same when it is read, one that was damaged is refused, and what
// only files have is not of its meaning.
func TestSaved(t *testing.T) {
	l, err := Open("movielens")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(l)
	var again Layout
	if err != nil || json.Unmarshal(text, &again) != nil || !reflect.DeepEqual(*l, again) {
		t.Errorf("%+v became %+v, %v", *l, again, err)
	}
	for _, bad := range []string{`{"name":"x","columns":[]}`, `{"columns":[{"kind":"tag"}]}`, `[]`, `{}`, `null`} {
		if err := new(Layout).UnmarshalJSON([]byte(bad)); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	again.Separator, again.Header = "\t", false
	again.Columns = append(again.Columns, Column{Kind: Ignore})
	if !bytes.Equal(l.Meaning(), again.Meaning()) || l.Separator == again.Separator {
		t.Errorf("%s\n%s", l.Meaning(), again.Meaning())
	}
	again.Columns[0].From = nil
	if bytes.Equal(l.Meaning(), again.Meaning()) {
		t.Error("other labels mean the same")
	}
}
