package parquet

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/ringo-ml/ringo/data/table"
)

// groupRows is the number of rows of a row group or record batch: readers decode groups in
// parallel, and a writer holds one.
const groupRows = 1 << 16

// Writer is a table.Writer for Parquet with Snappy compression, or for an uncompressed Arrow file.
// The output depends only on the rows.
type Writer struct {
	fields []table.Field
	kind   string // format, for errors
	file   interface {
		Write(arrow.RecordBatch) error
		Close() error
	}
	group *array.RecordBuilder
	rows  int // rows in group
	total int64
}

// NewWriter begins a table in Parquet. The fields' names must differ.
func NewWriter(to io.Writer, fields []table.Field) (*Writer, error) {
	w, schema, err := newWriter("parquet", fields)
	if err != nil {
		return nil, err
	}
	props := parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Snappy), parquet.WithMaxRowGroupLength(groupRows))
	if w.file, err = pqarrow.NewFileWriter(schema, struct{ io.Writer }{to}, props, pqarrow.DefaultWriterProps()); err != nil {
		return nil, fmt.Errorf("parquet: %w", err)
	}
	return w, nil
}

// NewArrowWriter is NewWriter for an Arrow file.
func NewArrowWriter(to io.Writer, fields []table.Field) (*Writer, error) {
	w, schema, err := newWriter("arrow", fields)
	if err != nil {
		return nil, err
	}
	if w.file, err = ipc.NewFileWriter(to, ipc.WithSchema(schema)); err != nil {
		return nil, fmt.Errorf("arrow: %w", err)
	}
	return w, nil
}

// newWriter returns a Writer without a file, and the schema.
func newWriter(kind string, fields []table.Field) (*Writer, *arrow.Schema, error) {
	types := map[table.Type]arrow.DataType{table.Text: arrow.BinaryTypes.String, table.Integer: arrow.PrimitiveTypes.Int64, table.Float: arrow.PrimitiveTypes.Float64}
	var columns []arrow.Field
	seen := map[string]bool{}
	for _, f := range fields {
		if seen[f.Name] || types[f.Type] == nil {
			return nil, nil, fmt.Errorf("%s: column %q: want a type that is known, and a name that no other column has", kind, f.Name)
		}
		seen[f.Name] = true
		columns = append(columns, arrow.Field{Name: f.Name, Type: types[f.Type]})
	}
	schema := arrow.NewSchema(columns, nil)
	return &Writer{fields: fields, kind: kind, group: array.NewRecordBuilder(memory.DefaultAllocator, schema)}, schema, nil
}

// Append writes a row.
func (w *Writer) Append(row []string) error {
	if len(row) != len(w.fields) {
		return fmt.Errorf("%s: row %d has %d fields, want %d", w.kind, w.total, len(row), len(w.fields))
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
			return fmt.Errorf("%s: row %d, column %q: %w", w.kind, w.total, f.Name, err)
		}
	}
	w.total++
	if w.rows++; w.rows < groupRows {
		return nil
	}
	return w.flush()
}

func (w *Writer) flush() error {
	batch := w.group.NewRecordBatch()
	defer batch.Release()
	w.rows = 0
	if err := w.file.Write(batch); err != nil {
		return fmt.Errorf("%s: %w", w.kind, err)
	}
	return nil
}

// Close writes the remaining rows and the footer. An empty table is written as zero rows.
func (w *Writer) Close() error {
	defer w.group.Release()
	if w.rows > 0 {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if err := w.file.Close(); err != nil {
		return fmt.Errorf("%s: %w", w.kind, err)
	}
	return nil
}
