package parquet

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/data/table"
)

// What is written is read again, over several row groups or batches, in order; the same rows are the same bytes.
func TestWriter(t *testing.T) {
	t.Run("parquet", func(t *testing.T) {
		path := testWriter(t, NewWriter, Open)
		n := 0
		if err := (&reader{name: path}).with(func(g groups) error { n = g.ParquetReader().NumRowGroups(); return nil }); err != nil || n != 2 {
			t.Errorf("%d row groups, %v", n, err)
		}
	})
	t.Run("arrow", func(t *testing.T) { testWriter(t, NewArrowWriter, OpenArrow) })
}

func testWriter(t *testing.T, create func(io.Writer, []table.Field) (*Writer, error), open func(string) (table.Reader, error)) string {
	t.Helper()
	fields := []table.Field{{Name: "row", Type: table.Integer}, {Name: "word"}, {Name: "p", Type: table.Float}}
	const n = groupRows + 3
	text := func(i int) []string {
		return []string{fmt.Sprint(i), fmt.Sprintf("w,\"%d\r\n", i%7), fmt.Sprint(float64(i) / 8)}
	}
	write := func() []byte {
		var b bytes.Buffer
		w, err := create(&b, fields)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if err := w.Append(text(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	first := write()
	if !bytes.Equal(first, write()) {
		t.Error("the same rows are other bytes")
	}
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, first, 0o666); err != nil {
		t.Fatal(err)
	}
	r, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.Columns(), " "); got != "row word p" {
		t.Errorf("columns %s", got)
	}
	lines := strings.Split(asCSV(t, r), "\n")
	if len(lines) < n || lines[1] != "0,\"w,\"\"0\r" || lines[len(lines)-2] != fmt.Sprintf(`",%v`, float64(n-1)/8) {
		t.Errorf("%d lines, such as %q", len(lines), lines[1:4])
	}
	return path
}

// asCSV is a table as CSV.
func asCSV(t *testing.T, r table.Reader) string {
	t.Helper()
	var b strings.Builder
	to := csv.NewWriter(&b)
	var all []int
	for i := range r.Columns() {
		all = append(all, i)
	}
	_ = to.Write(r.Columns())
	err := r.Scan(all, func(err error) error { return err }, func(c *table.Chunk) error {
		for i := range c.N {
			var row []string
			for _, v := range c.Columns {
				row = append(row, textOf(v, i))
			}
			_ = to.Write(row)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	to.Flush()
	return b.String()
}

// What is no table, and texts that are no numbers, are errors.
func TestWriterFaults(t *testing.T) {
	for want, fields := range map[string][]table.Field{`column "a"`: {{Name: "a"}, {Name: "a"}}, `column "b"`: {{Name: "b", Type: 9}}} {
		if _, err := NewWriter(new(bytes.Buffer), fields); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for want, row := range map[string][]string{"1 fields, want 2": {"1"}, `column "i"`: {"x", "1"}, `column "f"`: {"1", "x"}} {
		w, err := NewWriter(new(bytes.Buffer), []table.Field{{Name: "i", Type: table.Integer}, {Name: "f", Type: table.Float}})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Append(row); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "row 0") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	w, err := NewWriter(full{}, []table.Field{{Name: "i"}})
	if err == nil {
		err = errors.Join(w.Append([]string{"a"}), w.Close())
	}
	if err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("a full disk: %v", err)
	}
}

// full is a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// textOf is a value as CSV has it.
func textOf(v table.Vector, i int) string {
	if v.Numbers != nil {
		return strconv.FormatFloat(v.Numbers[i], 'g', -1, 64)
	}
	return v.Words[i]
}
