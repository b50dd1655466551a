package parquet

import (
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
