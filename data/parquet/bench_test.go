package parquet

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
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
func large(b *testing.B) string {
	var fields []arrow.Field
	for i := range largeColumns {
		fields = append(fields, arrow.Field{Name: fmt.Sprint("c", i), Type: arrow.PrimitiveTypes.Float64})
	}
	schema := arrow.NewSchema(fields, nil)
	var groups []arrow.RecordBatch
	for g := range largeGroups {
		build := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		for c := range largeColumns {
			for i := range largeRows {
				build.Field(c).(*array.Float64Builder).Append(math.Sin(float64(i*(c+1) + g)))
			}
		}
		groups = append(groups, build.NewRecordBatch())
	}
	return write(b, compress.Codecs.Snappy, groups...)
}

// BenchmarkScan reads all columns as training does.
func BenchmarkScan(b *testing.B) {
	in, err := Open(large(b))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(largeBytes)
	for b.Loop() {
		if err := in.Scan([]int{0, 1, 2, 3, 4, 5, 6, 7}, nil, func(*table.Chunk) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkArrowAlone reads them with arrow-go, columns in parallel, which is what it offers.
func BenchmarkArrowAlone(b *testing.B) {
	path := large(b)
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
