package parquet

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/ringo-ml/ringo/data/table"
)

const (
	largeColumns = 8
	largeGroups  = 8
	largeRows    = 1 << 16 // of a group
	largeBytes   = largeColumns * largeGroups * largeRows * 8
)

// large is a table of numbers.
func large() (groups []arrow.RecordBatch) {
	var fields []arrow.Field
	for i := range largeColumns {
		fields = append(fields, arrow.Field{Name: fmt.Sprint("c", i), Type: arrow.PrimitiveTypes.Float64})
	}
	schema := arrow.NewSchema(fields, nil)
	for g := range largeGroups {
		build := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		for c := range largeColumns {
			for i := range largeRows {
				build.Field(c).(*array.Float64Builder).Append(math.Sin(float64(i*(c+1) + g)))
			}
		}
		groups = append(groups, build.NewRecordBatch())
	}
	return groups
}

// BenchmarkScan reads all columns as training does.
func BenchmarkScan(b *testing.B) {
	for name, open := range map[string]func() (table.Reader, error){
		"parquet":    func() (table.Reader, error) { return Open(write(b, compress.Codecs.Snappy, large()...)) },
		"arrow":      func() (table.Reader, error) { return OpenArrow(writeArrow(b, false, large())) },
		"arrow-zstd": func() (table.Reader, error) { return OpenArrow(writeArrow(b, false, large(), ipc.WithZstd())) },
	} {
		b.Run(name, func(b *testing.B) {
			in, err := open()
			if err != nil {
				b.Fatal(err)
			}
			scanAll(b, in)
		})
	}
}

func scanAll(b *testing.B, in table.Reader) {
	b.SetBytes(largeBytes)
	for b.Loop() {
		if err := in.Scan([]int{0, 1, 2, 3, 4, 5, 6, 7}, nil, func(*table.Chunk) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkArrowFilesAlone reads an Arrow file with arrow-go.
func BenchmarkArrowFilesAlone(b *testing.B) {
	for name, options := range map[string][]ipc.Option{"arrow": nil, "arrow-zstd": {ipc.WithZstd()}} {
		b.Run(name, func(b *testing.B) {
			path := writeArrow(b, false, large(), options...)
			b.SetBytes(largeBytes)
			for b.Loop() {
				f, err := os.Open(path)
				if err != nil {
					b.Fatal(err)
				}
				r, err := ipc.NewFileReader(f)
				for err == nil {
					_, err = r.Read()
				}
				if err != io.EOF || f.Close() != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkArrowAlone reads them with arrow-go, columns in parallel, which is what it offers.
func BenchmarkArrowAlone(b *testing.B) {
	path := write(b, compress.Codecs.Snappy, large()...)
	b.SetBytes(largeBytes)
	for b.Loop() {
		r, err := file.OpenParquetFile(path, false)
		if err != nil {
			b.Fatal(err)
		}
		in, err := pqarrow.NewFileReader(r, pqarrow.ArrowReadProperties{BatchSize: batchRows, Parallel: true}, memory.DefaultAllocator)
		if err != nil {
			b.Fatal(err)
		}
		records, err := in.GetRecordReader(context.Background(), nil, nil)
		if err != nil {
			b.Fatal(err)
		}
		for records.Next() {
			_ = records.RecordBatch()
		}
		if records.Err() != nil {
			b.Fatal(records.Err())
		}
		records.Release()
		_ = r.Close()
	}
}
