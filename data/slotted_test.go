package data

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/layout"
	"github.com/ringo-ml/ringo/internal/data/prng"
)

func layoutOf(t testing.TB, text string) *layout.Layout {
	t.Helper()
	l, err := layout.Read("l.yaml", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// readSlotted reads a text by a layout.
func readSlotted(name string, r io.Reader, l *layout.Layout, threads, limit int, bad *datafile.Skips) (*clickPages, error) {
	f, err := clicks.LayoutFormat(l)
	if err != nil {
		return nil, err
	}
	return readClicks(name, r, f, threads, limit, bad)
}

const shopLayout = `
separator: comma
header: true
columns:
  - {name: rating, kind: label, from: 4}
  - {name: price, kind: number, transform: log}
  - {name: weight, kind: number}
  - {name: item, kind: category}
  - {name: tags, kind: bag, separator: ";"}
  - {name: seen, kind: sequence, table: item}
  - {name: given, kind: bag, values: key}
`

const shopText = "more,item,rating,tags,price,weight,seen,given\n" +
	"x,apple,5,a;b,3,0.5,pear|apple,0|18446744073709551615\n" +
	"y,pear,3.5,,,,,\r\n" +
	"z,\"a, \"\"b\"\"\",4,\"a\",-7,-1e3,apple,1\n" +
	",,1,b;a;b,1000000,2,pear|pear,7"

// told is a sample as it is written down, keys of text as their words.
type told struct {
	label   int32
	numbers []float32
	bags    [][]uint64
}

// naiveShop reads shopLayout's files by encoding/csv, column by column.
func naiveShop(t *testing.T, text string) (out []told) {
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	at := func(row []string, name string) string { return row[slices.Index(rows[0], name)] }
	number := func(s string) float64 { x, _ := strconv.ParseFloat(s, 64); return x }
	words := func(table, s, between string) (keys []uint64) {
		if s == "" {
			return nil
		}
		h := uint64(14695981039346656037) // FNV-1a
		for _, b := range []byte(table) {
			h = (h ^ uint64(b)) * 1099511628211
		}
		for _, w := range strings.Split(s, between) {
			keys = append(keys, clicks.TextKey(h, []byte(w)))
		}
		return keys
	}
	for _, row := range rows[1:] {
		s := told{numbers: []float32{float32(math.Log1p(max(0, number(at(row, "price"))))), float32(number(at(row, "weight")))}}
		if number(at(row, "rating")) >= 4 {
			s.label = 1
		}
		var given []uint64
		for _, k := range strings.Split(at(row, "given"), "|") {
			if v, err := strconv.ParseUint(k, 10, 64); err == nil {
				given = append(given, v)
			}
		}
		s.bags = [][]uint64{words("item", at(row, "item"), "\x00"), words("tags", at(row, "tags"), ";"), words("item", at(row, "seen"), "|"), given}
		out = append(out, s)
	}
	return out
}

// Samples of a layout are what a naive reader makes of the file, in any order and chunk, with the same keys in tables that are shared.
func TestSlotted(t *testing.T) {
	s, err := readSlotted("shop.csv", strings.NewReader(shopText), layoutOf(t, shopLayout), 2, 0, new(datafile.Skips))
	if err != nil {
		t.Fatal(err)
	}
	want := naiveShop(t, shopText)
	if s.Len() != len(want) {
		t.Fatalf("%d samples, want %d", s.Len(), len(want))
	}
	if got := s.Shape(); !slices.Equal(got.Values, []int{2}) || got.Labels != 1 || !slices.Equal(got.Slots, []Slot{{"item", false}, {"tags", false}, {"seen", true}, {"given", false}}) {
		t.Errorf("shape %+v", got)
	}
	var b Batch
	order := []int32{3, 0, 2, 1, 0}
	if err := s.Fill(&b, order, Draw{}); err != nil {
		t.Fatal(err)
	}
	for i, n := range order {
		w := want[n]
		if b.Labels[i] != w.label || !slices.Equal(b.Values[2*i:2*i+2], w.numbers) {
			t.Errorf("sample %d: label %d, numbers %v, want %+v", n, b.Labels[i], b.Values[2*i:2*i+2], w)
		}
		for slot, bag := range w.bags {
			if got := b.Bags.Bag(slot, len(order), i); !slices.Equal(got, bag) {
				t.Errorf("sample %d, slot %d: %v, want %v", n, slot, got, bag)
			}
		}
	}
	if seen, item := b.Bags.Bag(2, 5, 1), b.Bags.Bag(0, 5, 1); seen[1] != item[0] {
		t.Error("a sequence does not share its table's keys")
	}
}

// The layout criteo gives the samples of Criteo's own parser, by way of it and without, and refuses the same lines.
func TestSlottedCriteo(t *testing.T) {
	l, err := layout.Open("criteo")
	if err != nil {
		t.Fatal(err)
	}
	fast, err := clicks.NewParser(l, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := fast.(*clicks.CriteoParser); !ok {
		t.Fatal("Criteo's parser is not used")
	}
	slow, err := clicks.NewLayoutParser(l, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	text := []byte("0\t1\t\t-3\t20000\t5\t6\t7\t8\t9\t10\t11\t12\t123456789\tdeadbeef\t\tABCDEF01\t0" + strings.Repeat("\t1f", 22) + "\r\n" +
		"2\t1\n" + "1" + strings.Repeat("\t", 39) + "\n" + "1\tx" + strings.Repeat("\t", 38) + "\n" + "1" + strings.Repeat("\t", 38) + "\tffffffffffffffff")
	var a, b clicks.Block
	fast.Parse(text, &a)
	slow.Parse(text, &b)
	x, y := a.Rows, b.Rows
	if !slices.Equal(x.Labels, y.Labels) || !slices.Equal(x.Numbers, y.Numbers) || !slices.Equal(x.Keys, y.Keys) || !slices.Equal(x.Ends, y.Ends) || !slices.Equal(x.Starts, y.Starts) || a.Lines != b.Lines {
		t.Errorf("by Criteo's parser %+v, by the layout's %+v", x, y)
	}
	if len(x.Labels) != 3 || len(a.Faults) != 2 || len(b.Faults) != 2 || a.Faults[1].Line != b.Faults[1].Line {
		t.Errorf("%d rows, faults %v and %v", len(x.Labels), a.Faults, b.Faults)
	}
}

// A layout of one's own with Criteo's columns takes decimals.
func TestSlottedLikeCriteo(t *testing.T) {
	l := layoutOf(t, "columns:\n  - {name: label, kind: label}\n  - {name: I, times: 13, kind: number, transform: log}\n  - {name: C, times: 26, kind: category, values: hex}\n")
	s, err := readSlotted("f.tsv", strings.NewReader("1\t0.5"+strings.Repeat("\t", 38)+"\n"), l, 1, 0, new(datafile.Skips))
	if err != nil || s.Len() != 1 || s.pages[0].Numbers[0] != float32(math.Log1p(0.5)) {
		t.Errorf("%+v, %v", s, err)
	}
}

// What is wrong with a line is told with file, byte, line and column, and what may be left out is.
func TestSlottedFaults(t *testing.T) {
	l := layoutOf(t, shopLayout)
	header, good := "item,rating,tags,price,weight,seen,given\n", "a,5,,,,,\n"
	for _, c := range []struct{ line, says string }{
		{"a,x,,,,,", `column 2, rating: "x": want a number`},
		{"a,,,,,,", `column 2, rating: "": want a number`},
		{"a,5,,1e,,,", `column 4, price: "1e": want a number or nothing`},
		{"a,5,,,NaN,,", `column 5, weight: "NaN"`},
		{"a,5,,,1e39,,", `column 5, weight: "1e39"`},
		{"a,5,b;;c,,,,", `column 3, tags: "b;;c": an empty value`},
		{"a,5,b;,,,,", `an empty value`},
		{"a,5,,,,,18446744073709551616", `column 7, given: "18446744073709551616": want a key`},
		{"a,5,,,,", "the line ends after field 6 of 7"},
		{"a,5,,,,,,", "more than 7 fields"},
		{`"a,5,,,,,`, "field 1: a quote that does not close"},
		{`"a"b,5,,,,,`, "field 1: text after the closing quote"},
		{"", "the line ends after field 1 of 7"},
	} {
		text := header + good + c.line + "\n" + good
		_, err := readSlotted("f.csv", strings.NewReader(text), l, 1, 0, new(datafile.Skips))
		if err == nil || !strings.Contains(err.Error(), "f.csv: byte ") || !strings.Contains(err.Error(), "line 3: ") || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want %q", c.line, err, c.says)
		}
		bad := &datafile.Skips{Max: 1}
		if s, err := readSlotted("f.csv", strings.NewReader(text), l, 1, 0, bad); err != nil || s.Len() != 2 || bad.Count() != 1 {
			t.Errorf("%q left out: %v, %d", c.line, err, bad.Count())
		}
	}
	for text, says := range map[string]string{
		"item,rating\n": `f.csv: byte 0: line 1: there is no column "price" of layout l.yaml`, header: "no samples", "": "line 1: there is no column", `"item`: "line 1: field 1: a quote",
		"x,x," + strings.Replace(header, "tags", "item", 1): `fields 3 and 5 are both called "item"`,
	} {
		if _, err := readSlotted("f.csv", strings.NewReader(text), l, 1, 0, new(datafile.Skips)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

// A million keys are one bag; a line of more bytes than one may have is refused by name, whatever its length.
func TestSlottedLargeBag(t *testing.T) {
	l := layoutOf(t, "columns:\n  - {name: y, kind: label}\n  - {name: b, kind: bag, values: key}\n")
	text := "1\t" + strings.Repeat("12345|", 999_999) + "7\n0\t\n"
	s, err := readSlotted("large.tsv", strings.NewReader(text), l, 1, 0, new(datafile.Skips))
	if err != nil {
		t.Fatal(err)
	}
	var b Batch
	if err := s.Fill(&b, []int32{1, 0}, Draw{}); err != nil || len(b.Bags.Bag(0, 2, 1)) != 1_000_000 || len(b.Bags.Bag(0, 2, 0)) != 0 || b.Bags.Keys[999_999] != 7 {
		t.Errorf("%d keys, %v", len(b.Bags.Keys), err)
	}
	if _, err := readSlotted("larger.tsv", strings.NewReader("1\t"+strings.Repeat("12345|", 6_000_000)), l, 1, 0, new(datafile.Skips)); err == nil || !strings.Contains(err.Error(), "larger.tsv: byte 0: a line of more than 33554432 bytes") {
		t.Errorf("a line too long: %v", err)
	}
}

// A set is opened by its layout from a folder, compressed files among them, and without one refused.
func TestOpenSlotted(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"l.yaml": shopLayout, "train.csv": shopText, "test.csv": shopText} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	set, err := Open("clicks", Config{Dir: dir, Layout: filepath.Join(dir, "l.yaml"), TrainLimit: 3})
	if err != nil || set.Train.Len() != 3 || set.Eval.Len() != 4 || set.Classes != 2 {
		t.Fatalf("%+v, %v", set, err)
	}
	for _, c := range []struct {
		cfg  Config
		says string
	}{
		{Config{Dir: dir}, "needs a layout"}, {Config{Dir: dir, Layout: "criteoo"}, "criteo"}, {Config{Dir: dir, Layout: "/nowhere.yaml"}, "nowhere"},
		{Config{Dir: Synthetic, Layout: "criteo"}, "criteo is of files"}, {Config{Dir: t.TempDir(), Layout: "criteo"}, "has no .txt or .tsv file"},
	} {
		if _, err := Open("clicks", c.cfg); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.says)
		}
	}
}

// Whatever the lines, rows are whole and within their bounds, and as many lines are counted as there are.
func FuzzSlotted(f *testing.F) {
	f.Add([]byte(shopText[strings.IndexByte(shopText, '\n')+1:]))
	f.Add([]byte("\"\"\"\",5\n,,,,,,,\n\x00\xff\n"))
	l, err := layout.Read("l.yaml", strings.NewReader(strings.Replace(shopLayout, "header: true", "header: false", 1)))
	if err != nil {
		f.Fatal(err)
	}
	p, err := clicks.NewLayoutParser(l, nil, false)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var b clicks.Block
		p.Parse(text, &b)
		r := b.Rows
		n := len(r.Labels)
		lines := bytes.Count(text, []byte{'\n'})
		if len(text) > 0 && text[len(text)-1] != '\n' {
			lines++
		}
		if b.Lines != lines || n+len(b.Faults) != lines || len(r.Numbers) != 2*n || len(r.Ends) != 4*n || len(r.Starts) != n+1 || r.Starts[n] != len(r.Keys) {
			t.Fatalf("%d lines, want %d; %d rows, %d faults", b.Lines, lines, n, len(b.Faults))
		}
		for row := range n {
			for slot := range 4 {
				r.Bag(row, 4, slot)
			}
		}
		for _, fault := range b.Faults {
			if fault.Offset < 0 || fault.Offset > len(text) {
				t.Fatalf("a fault at %d of %d", fault.Offset, len(text))
			}
		}
	})
}

func BenchmarkSlotted(b *testing.B) {
	var text []byte
	for i := range 1000 {
		text = fmt.Appendf(text, "%d", i%2)
		for k := range clicks.CriteoNumbers {
			text = fmt.Appendf(text, "\t%d", prng.Mix(uint64(i*k))%1000)
		}
		for k := range clicks.CriteoSlots {
			text = fmt.Appendf(text, "\t%08x", uint32(prng.Mix(uint64(i*k+7))))
		}
		text = append(text, '\n')
	}
	b.Run("criteo", func(b *testing.B) {
		p := clicks.NewCriteoParser(0, true)
		var out clicks.Block
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			p.Parse(text, &out)
		}
	})
	l, err := layout.Open("criteo")
	if err != nil {
		b.Fatal(err)
	}
	for name, of := range map[string]func() (clicks.Parser, error){
		"layout":  func() (clicks.Parser, error) { return clicks.NewParser(l, nil, false) },
		"general": func() (clicks.Parser, error) { return clicks.NewLayoutParser(l, nil, false) },
	} {
		b.Run(name, func(b *testing.B) {
			p, err := of()
			if err != nil {
				b.Fatal(err)
			}
			var out clicks.Block
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				p.Parse(text, &out)
			}
		})
	}
}
