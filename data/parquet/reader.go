// Package parquet reads and writes tables in Parquet and in Arrow's formats, through arrow-go.
//
// Parquet is a separate module, because arrow-go makes ringo's binary larger by three quarters and
// has dependencies that would raise ringo's. Folder wiring has the file that builds package data
// with both formats.
//
// Row groups are decoded in parallel and delivered in order; unused columns are not read.
package parquet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// batchRows is the number of rows of a row group decoded at a time.
const batchRows = 1 << 16

// Open opens a Parquet file as a table with the schema's columns. A damaged file returns a
// *table.Fault here or in a scan. A scan returns an error for columns of unsupported types.
func Open(path string) (table.Reader, error) {
	t := &reader{name: path, kind: "a Parquet"}
	t.pass = t.rowGroups
	err := t.with(func(g groups) error {
		for _, f := range g.schema.Fields() {
			t.names = append(t.names, f.Name)
		}
		return table.CheckNames(path, t.names)
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// reader is a Parquet file as a table.
type reader struct {
	name  string
	kind  string // format with article, for errors
	names []string
	pass  func(want []int, as form, visit func(*table.Chunk) error) error
}

// Name returns the file's name.
func (t *reader) Name() string { return t.name }

// Columns returns the schema's names.
func (t *reader) Columns() []string { return t.names }

// groups holds the row groups of an open file.
type groups struct {
	*pqarrow.FileReader
	schema *arrow.Schema
}

// with opens the file and calls use.
func (t *reader) with(use func(groups) error) error {
	f, err := pathname.Open(t.name)
	if err != nil {
		return err
	}
	defer f.Close()
	var g groups
	err = t.guarded(func() error {
		g, err = openGroups(f)
		return err
	})
	if err != nil {
		return err
	}
	return use(g)
}

// openGroups reads the footer of a file.
func openGroups(f *os.File) (groups, error) {
	info, err := f.Stat()
	if err != nil {
		return groups{}, err
	}
	if err := checkFooter(f, info.Size()); err != nil {
		return groups{}, err
	}
	mem := limited(info.Size())
	r, err := file.NewParquetReader(f, file.WithReadProps(parquet.NewReaderProperties(mem)))
	if err != nil {
		return groups{}, err
	}
	// Some writers add Arrow's schema. It is dropped, because the decoder allocates any length that
	// a damaged schema declares. Parquet's schema suffices.
	r.MetaData().FileMetaData.KeyValueMetadata = nil
	in, err := pqarrow.NewFileReader(r, pqarrow.ArrowReadProperties{BatchSize: batchRows}, mem)
	if err != nil {
		return groups{}, err
	}
	s, err := in.Schema()
	return groups{in, s}, err
}

// guarded converts an error or a panic of arrow-go, which trusts files, to a table.Fault; a
// cancelled pass is returned unchanged. arrow-go starts no goroutine for these calls, so no panic
// can occur elsewhere.
func (t *reader) guarded(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			err = t.fault("", "damaged, truncated or not %s file: %v", t.kind, err)
		}
	}()
	return do()
}

// fault returns a table.Fault of the file or of a column.
func (t *reader) fault(column, problem string, args ...any) error {
	return &table.Fault{File: t.name, Column: column, Problem: fmt.Sprintf(problem, args...)}
}

// Scan decodes row groups of a Parquet file in parallel, one per processor, and holds a batch of
// each. Record batches of an Arrow file are decoded in order.
func (t *reader) Scan(want []int, _ func(error) error, visit func(*table.Chunk) error) error {
	return t.pass(want, plain, visit)
}

// ScanText is Scan with all values as text. Columns of lists are supported, too.
func (t *reader) ScanText(want []int, visit func(*table.Chunk) error) error {
	return t.pass(want, textual, visit)
}

func (t *reader) rowGroups(want []int, as form, visit func(*table.Chunk) error) error {
	return t.with(func(g groups) error {
		if err := t.columns(g.schema.Fields(), want, as); err != nil {
			return err
		}
		return t.scan(g, want, as, visit)
	})
}

// columns returns an error for columns that have changed since Open, or of unsupported types.
func (t *reader) columns(fields []arrow.Field, want []int, as form) error {
	if len(fields) != len(t.names) {
		return t.fault("", "it has %d columns, and had %d", len(fields), len(t.names))
	}
	for _, n := range want {
		if fields[n].Name != t.names[n] {
			return t.fault(t.names[n], "it is called %q now", fields[n].Name)
		}
		if !as.known(fields[n].Type) {
			return t.fault(t.names[n], "values of type %v: want %s", fields[n].Type, as.supported)
		}
	}
	return nil
}

// decoded is a decoded batch or an error.
type decoded struct {
	chunk table.Chunk
	err   error
}

// scan runs a goroutine for the current row group and for each of the next ones, one per processor.
func (t *reader) scan(g groups, want []int, as form, visit func(*table.Chunk) error) error {
	ctx, stop := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	defer wait.Wait() // the caller closes the file
	defer stop()
	queues := make([]chan decoded, g.ParquetReader().NumRowGroups())
	start := func(i int) {
		queues[i] = make(chan decoded, 1)
		wait.Go(func() {
			defer close(queues[i])
			if err := t.guarded(func() error { return g.decode(ctx, i, want, as, queues[i]) }); err != nil {
				hand(ctx, queues[i], decoded{err: err})
			}
		})
	}
	first, started := int64(0), 0
	for i := range queues {
		for ; started < min(i+runtime.GOMAXPROCS(0), len(queues)); started++ {
			start(started)
		}
		for d := range queues[i] {
			if d.err != nil {
				return d.err
			}
			d.chunk.First = first
			if first += int64(d.chunk.N); first > table.MaxRows {
				return t.fault("", "more than %d rows", table.MaxRows)
			}
			if err := visit(&d.chunk); err != nil {
				return err
			}
		}
	}
	return nil
}

// hand blocks until the batch is received or the pass ends.
func hand(ctx context.Context, to chan<- decoded, d decoded) error {
	select {
	case to <- d:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// decode converts a row group to chunks.
func (g groups) decode(ctx context.Context, group int, want []int, as form, to chan<- decoded) error {
	rows := g.ParquetReader().MetaData().RowGroup(group).NumRows()
	if rows == 0 {
		return nil
	}
	leaves := make([]int, len(want))
	for i, n := range want {
		leaf := &g.Manifest.Fields[n]
		if len(leaf.Children) > 0 { // values of a list
			leaf = &leaf.Children[0]
		}
		leaves[i] = leaf.ColIndex
	}
	r, err := g.GetRecordReader(ctx, leaves, []int{group})
	if err != nil {
		return fmt.Errorf("row group %d: %w", group, err)
	}
	defer r.Release()
	for r.Next() {
		batch := r.RecordBatch()
		rows -= batch.NumRows()
		d := decoded{chunk: table.Chunk{N: int(batch.NumRows()), Columns: make([]table.Vector, len(want))}}
		for i, n := range want { // batch columns have the file's order
			at := batch.Schema().FieldIndices(g.schema.Field(n).Name)
			column := batch.Column(at[0])
			if column.Len() != d.chunk.N { // arrow-go trusts the footer's number of rows
				return fmt.Errorf("row group %d: column %q has %d values for %d rows", group, g.schema.Field(n).Name, column.Len(), d.chunk.N)
			}
			if d.chunk.Columns[i], err = as.vector(column); err != nil {
				return fmt.Errorf("row group %d: column %q: %w", group, g.schema.Field(n).Name, err)
			}
		}
		if err := hand(ctx, to, d); err != nil {
			return err
		}
	}
	if err := r.Err(); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("row group %d: %w", group, err)
	}
	if rows != 0 {
		return fmt.Errorf("row group %d: the footer says %d rows more than its columns have", group, rows)
	}
	return nil
}
