package parquet

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/ringo-ml/ringo/data/table"
)

// groupRows is how many rows a row group has: readers decode groups in parallel, and a writer holds one.
const groupRows = 1 << 16

// Writer writes a table in Parquet, compressed by Snappy. It is a table.Writer. What it writes depends on the rows alone.
type Writer struct {
	fields []table.Field
	file   *pqarrow.FileWriter
	group  *array.RecordBuilder
	rows   int // of the group
	total  int64
}

// NewWriter begins a table with columns of some names, all different.
func NewWriter(to io.Writer, fields []table.Field) (*Writer, error) {
	types := map[table.Type]arrow.DataType{table.Text: arrow.BinaryTypes.String, table.Integer: arrow.PrimitiveTypes.Int64, table.Float: arrow.PrimitiveTypes.Float64}
	var columns []arrow.Field
	seen := map[string]bool{}
	for _, f := range fields {
		if seen[f.Name] || types[f.Type] == nil {
			return nil, fmt.Errorf("parquet: column %q: want a type that is known, and a name that no other column has", f.Name)
		}
		seen[f.Name] = true
		columns = append(columns, arrow.Field{Name: f.Name, Type: types[f.Type]})
	}
	schema := arrow.NewSchema(columns, nil)
	props := parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Snappy), parquet.WithMaxRowGroupLength(groupRows))
	file, err := pqarrow.NewFileWriter(schema, struct{ io.Writer }{to}, props, pqarrow.DefaultWriterProps())
	if err != nil {
		return nil, fmt.Errorf("parquet: %w", err)
	}
	return &Writer{fields: fields, file: file, group: array.NewRecordBuilder(memory.DefaultAllocator, schema)}, nil
}

// Append writes a row.
func (w *Writer) Append(row []string) error {
	if len(row) != len(w.fields) {
		return fmt.Errorf("parquet: row %d has %d fields, want %d", w.total, len(row), len(w.fields))
	}
	for i, f := range w.fields {
		var err error
		switch b := w.group.Field(i).(type) {
		case *array.Int64Builder:
			var x int64
			x, err = strconv.ParseInt(row[i], 10, 64)
			b.Append(x)
		case *array.Float64Builder:
			var x float64
			x, err = strconv.ParseFloat(row[i], 64)
			b.Append(x)
		case *array.StringBuilder:
			b.Append(strings.ToValidUTF8(row[i], "\ufffd"))
		}
		if err != nil {
			return fmt.Errorf("parquet: row %d, column %q: %w", w.total, f.Name, err)
		}
	}
	w.total++
	if w.rows++; w.rows < groupRows {
		return nil
	}
	return w.flush()
}

// flush writes the group.
func (w *Writer) flush() error {
	batch := w.group.NewRecordBatch()
	defer batch.Release()
	w.rows = 0
	if err := w.file.Write(batch); err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	return nil
}

// Close writes the rows that are left and the footer. The zero rows of an empty table are written, too.
func (w *Writer) Close() error {
	defer w.group.Release()
	if w.rows > 0 {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if err := w.file.Close(); err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	return nil
}
