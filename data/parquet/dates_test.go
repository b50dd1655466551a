package parquet

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/compress"

	"github.com/ringo-ml/ringo/data/table"
)

// TestDatesAreAsText compares dates and times of a Parquet file with the same table as CSV: equal
// encoding, equal samples.
func TestDatesAreAsText(t *testing.T) {
	const n = 500
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "day", Type: arrow.FixedWidthTypes.Date32, Nullable: true},
		{Name: "at", Type: arrow.FixedWidthTypes.Timestamp_ms, Nullable: true},
		{Name: "y", Type: arrow.PrimitiveTypes.Float64},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	var text strings.Builder
	text.WriteString("day,at,y\n")
	for i := range n {
		at := time.Date(2020, 1, 1, 0, 0, 7919*i, 0, time.UTC).AddDate(0, 0, 3*i)
		if i%7 == 3 {
			b.Field(0).AppendNull()
			text.WriteString(",")
		} else {
			b.Field(0).(*array.Date32Builder).Append(arrow.Date32FromTime(at))
			text.WriteString(at.Format("2006-01-02,"))
		}
		b.Field(1).(*array.TimestampBuilder).Append(arrow.Timestamp(at.UnixMilli()))
		b.Field(2).(*array.Float64Builder).Append(float64(i) / 4)
		fmt.Fprintf(&text, "%s,%v\n", at.Format("2006-01-02T15:04:05"), float64(i)/4)
	}
	in, err := Open(write(t, compress.Codecs.Snappy, b.NewRecordBatch()))
	if err != nil {
		t.Fatal(err)
	}
	twin, err := table.OpenCSV("twin.csv", func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text.String())), nil })
	if err != nil {
		t.Fatal(err)
	}
	e, samples := encoded(t, in, table.Options{})
	want, wantSamples := encoded(t, twin, table.Options{})
	if !reflect.DeepEqual(e.Columns, want.Columns) || e.Columns[0].Kind != table.Date || e.Columns[1].Kind != table.Date {
		t.Errorf("got %+v\nwant %+v", e.Columns, want.Columns)
	}
	if e.Numbers() != 9 || !slices.Equal(samples.Values, wantSamples.Values) {
		t.Errorf("%d numbers, and samples differ from the text's", e.Numbers())
	}
	e, _ = encoded(t, in, table.Options{Schema: table.Schema{"day": table.Number, "at": table.Ignore}})
	if e.Columns[0].Kind != table.Number || e.Numbers() != 1 {
		t.Errorf("by the schema, a date is a number of days: got %+v", e.Columns[0])
	}
}
