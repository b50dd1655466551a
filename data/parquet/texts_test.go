package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/compress"

	"github.com/ringo-ml/ringo/data/table"
)

// clickBatches are rows of clicks, from a row on, with lists of words, of keys and of truth values, and the same rows as lines.
func clickBatches(t testing.TB, n, batch int) (out []arrow.RecordBatch, lines string) {
	t.Helper()
	s := arrow.NewSchema([]arrow.Field{
		{Name: "clicked", Type: arrow.FixedWidthTypes.Boolean}, {Name: "price", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		{Name: "item", Type: arrow.PrimitiveTypes.Uint64}, {Name: "tags", Type: arrow.ListOf(arrow.BinaryTypes.String), Nullable: true},
		{Name: "seen", Type: arrow.LargeListOf(arrow.PrimitiveTypes.Uint64)}, {Name: "more", Type: arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int8})},
	}, nil)
	text := strings.Builder{}
	text.WriteString("clicked,price,item,tags,seen\n")
	for at := 0; at < n; at += batch {
		var rows []string
		for i := at; i < min(at+batch, n); i++ {
			price, tags, words := fmt.Sprint(float64(i)/4), "null", ""
			if i%5 == 1 {
				price = "null"
			}
			if i%4 > 0 {
				words = strings.Join([]string{"red", "green", "a long word, with a comma"}[:i%4], "|")
				tags = `["` + strings.ReplaceAll(words, "|", `","`) + `"]`
			}
			item, seen := uint64(i%7)<<60+uint64(i%3), strings.Trim(strings.Repeat(fmt.Sprint(i%7, ","), i%3), ",")
			rows = append(rows, fmt.Sprintf(`{"clicked":%v,"price":%s,"item":%d,"tags":%s,"seen":[%s],"more":{"x":1}}`, i%3 == 0, price, item, tags, seen))
			fmt.Fprintf(&text, "%d,%s,%d,\"%s\",%s\n", map[bool]int{true: 1}[i%3 == 0], strings.Replace(price, "null", "", 1), item, words, strings.ReplaceAll(seen, ",", "|"))
		}
		b, _, err := array.RecordFromJSON(memory.DefaultAllocator, s, strings.NewReader("["+strings.Join(rows, ",")+"]"))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out, text.String()
}

// linesOf are the rows of a scan as lines.
func linesOf(r table.Reader, want []int) (string, error) {
	text := strings.Builder{}
	text.WriteString("clicked,price,item,tags,seen\n")
	err := r.(interface {
		ScanText([]int, func(*table.Chunk) error) error
	}).ScanText(want, func(c *table.Chunk) error {
		for row := range c.N {
			var fields []string
			for i := range c.Columns {
				v := &c.Columns[i]
				ends := append([]int{0}, v.Ends...)
				first, end := row, row+1
				if v.Rows != nil {
					first, end = append([]int{0}, v.Rows...)[row], v.Rows[row]
				}
				var words []string
				for n := first; n < end; n++ {
					words = append(words, string(v.Text[ends[n]:ends[n+1]]))
				}
				if fields = append(fields, strings.Join(words, "|")); i == 3 {
					fields[i] = `"` + fields[i] + `"`
				}
			}
			text.WriteString(strings.Join(fields, ",") + "\n")
		}
		return nil
	})
	return text.String(), err
}

var clickColumns = []int{0, 1, 2, 3, 4}

// Values of all types come as text, those of lists apart, whole numbers of 64 bits with all their digits, from Parquet and from Arrow.
func TestTexts(t *testing.T) {
	batches, want := clickBatches(t, 100, 30)
	for name, path := range map[string]string{
		"Parquet": write(t, compress.Codecs.Snappy, batches...), "Arrow": writeArrow(t, false, batches), "a stream": writeArrow(t, true, batches),
	} {
		open := OpenArrow
		if name == "Parquet" {
			open = Open
		}
		r, err := open(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := linesOf(r, clickColumns); err != nil || got != want {
			t.Errorf("%s: %v\n%.400s\nwant\n%.400s", name, err, got, want)
		}
		if _, err := linesOf(r, []int{5}); err == nil || !strings.Contains(err.Error(), `column "more": values of type struct`) || !strings.Contains(err.Error(), "lists of them") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Damaged lists are faults of their file.
func TestDamagedTexts(t *testing.T) {
	batches, _ := clickBatches(t, 60, 30)
	for _, path := range []string{write(t, compress.Codecs.Uncompressed, batches...), writeArrow(t, false, batches)} {
		open := OpenArrow
		if filepath.Ext(path) == ".parquet" {
			open = Open
		}
		damage(t, path, func() error {
			r, err := open(path)
			if err == nil {
				_, err = linesOf(r, clickColumns)
			}
			if fault := (*table.Fault)(nil); err != nil && (!errors.As(err, &fault) || fault.File != path) {
				t.Fatal(err)
			}
			return err
		})
	}
}

// clickFiles writes rows of clicks in a folder, as a layout has them.
func clickFiles(t *testing.T, dir string) {
	t.Helper()
	batches, text := clickBatches(t, 400, 64)
	for from, to := range map[string]string{write(t, compress.Codecs.Snappy, batches...): "clicks.parquet", writeArrow(t, false, batches): "clicks.arrow"} {
		if err := os.Rename(from, filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	layout := "separator: comma\nheader: true\ncolumns:\n  - {name: clicked, kind: label}\n  - {name: price, kind: number, transform: log}\n" +
		"  - {name: tags, kind: bag}\n  - {name: item, kind: category, values: key, table: item}\n  - {name: seen, kind: sequence, values: key, table: item}\n"
	for name, text := range map[string]string{"clicks.csv": text, "clicks.yaml": layout} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// Lists never have more values than there are: offsets that go back behind a missing row would name all values again in every second one. As
// many values as would take much memory without any text are refused before there are any.
func TestLyingLists(t *testing.T) {
	const n, rows = 1 << 10, 1 << 10
	lists := func(offsets []int32, present byte, values arrow.Array) arrow.Array {
		valid := bytes.Repeat([]byte{present}, len(offsets)/8+1)
		buffers := []*memory.Buffer{memory.NewBufferBytes(valid), memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets))}
		return array.MakeFromData(array.NewData(arrow.ListOf(values.DataType()), len(offsets)-1, buffers, []arrow.ArrayData{values.Data()}, -1, 0))
	}
	again := make([]int32, rows+1)
	for i := 1; i < len(again); i += 2 {
		again[i] = n
	}
	missing := array.MakeArrayOfNull(memory.DefaultAllocator, arrow.PrimitiveTypes.Int8, n)
	for _, c := range []struct {
		present byte // bits of the rows
		offsets []int32
		values  int // -1: a fault
	}{{0x55, again, -1}, {0xff, again, -1}, {0x00, again, -1}, {0xff, []int32{0, 0, n - 1, n}, n}, {0x55, []int32{0, 1, 3, n}, n - 2}, {0xff, []int32{0, n + 1}, -1}} {
		v, err := asTexts(lists(c.offsets, c.present, missing))
		if c.values < 0 {
			if err == nil || !strings.Contains(err.Error(), "a list has values") || len(v.Ends) > n {
				t.Errorf("offsets %.20s: %d values, %v", fmt.Sprint(c.offsets), len(v.Ends), err)
			}
		} else if err != nil || len(v.Ends) != c.values {
			t.Errorf("offsets %.20s: %d values, %v, want %d", fmt.Sprint(c.offsets), len(v.Ends), err, c.values)
		}
	}
	many := array.NewData(arrow.PrimitiveTypes.Int8, mostTexts+1, []*memory.Buffer{nil, memory.NewBufferBytes(make([]byte, mostTexts+1))}, nil, 0, 0)
	v, err := asTexts(lists([]int32{0, mostTexts + 1}, 0xff, array.MakeFromData(many)))
	if err == nil || !strings.Contains(err.Error(), "write smaller row groups") || len(v.Ends) > 0 {
		t.Errorf("%d values: %v", len(v.Ends), err)
	}
}
