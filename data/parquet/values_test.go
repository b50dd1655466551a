package parquet

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/compress"

	"github.com/ringo-ml/ringo/data/table"
)

// Each type that Arrow may write has its values, and one that is missing.
func TestTypes(t *testing.T) {
	day := time.Date(2024, 5, 17, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		of   arrow.DataType
		add  func(array.Builder)
		want any // a number or a word
	}{
		"int8":    {arrow.PrimitiveTypes.Int8, func(b array.Builder) { b.(*array.Int8Builder).Append(math.MinInt8) }, math.MinInt8 + 0.},
		"int16":   {arrow.PrimitiveTypes.Int16, func(b array.Builder) { b.(*array.Int16Builder).Append(math.MinInt16) }, math.MinInt16 + 0.},
		"int32":   {arrow.PrimitiveTypes.Int32, func(b array.Builder) { b.(*array.Int32Builder).Append(math.MinInt32) }, math.MinInt32 + 0.},
		"int64":   {arrow.PrimitiveTypes.Int64, func(b array.Builder) { b.(*array.Int64Builder).Append(math.MinInt64) }, math.MinInt64 + 0.},
		"uint8":   {arrow.PrimitiveTypes.Uint8, func(b array.Builder) { b.(*array.Uint8Builder).Append(math.MaxUint8) }, math.MaxUint8 + 0.},
		"uint16":  {arrow.PrimitiveTypes.Uint16, func(b array.Builder) { b.(*array.Uint16Builder).Append(math.MaxUint16) }, math.MaxUint16 + 0.},
		"uint32":  {arrow.PrimitiveTypes.Uint32, func(b array.Builder) { b.(*array.Uint32Builder).Append(math.MaxUint32) }, math.MaxUint32 + 0.},
		"uint64":  {arrow.PrimitiveTypes.Uint64, func(b array.Builder) { b.(*array.Uint64Builder).Append(1 << 63) }, float64(1 << 63)},
		"float16": {arrow.FixedWidthTypes.Float16, func(b array.Builder) { b.(*array.Float16Builder).Append(float16.New(1.5)) }, 1.5},
		"float32": {arrow.PrimitiveTypes.Float32, func(b array.Builder) { b.(*array.Float32Builder).Append(0.1) }, float64(float32(0.1))},
		"float64": {arrow.PrimitiveTypes.Float64, func(b array.Builder) { b.(*array.Float64Builder).Append(0.1) }, 0.1},
		"bool":    {arrow.FixedWidthTypes.Boolean, func(b array.Builder) { b.(*array.BooleanBuilder).Append(true) }, "true"},
		"string":  {arrow.BinaryTypes.String, func(b array.Builder) { b.(*array.StringBuilder).Append("é") }, "é"},
		"large":   {arrow.BinaryTypes.LargeString, func(b array.Builder) { b.(*array.LargeStringBuilder).Append("é") }, "é"},
		"date":    {arrow.FixedWidthTypes.Date32, func(b array.Builder) { b.(*array.Date32Builder).Append(arrow.Date32FromTime(day)) }, float64(day.Unix() / 86400)},
		"time": {arrow.FixedWidthTypes.Timestamp_ms, func(b array.Builder) {
			b.(*array.TimestampBuilder).Append(arrow.Timestamp(day.UnixMilli()))
		}, float64(day.UnixMilli())},
		"dictionary": {&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}, func(b array.Builder) {
			_ = b.(*array.BinaryDictionaryBuilder).AppendString("é")
		}, "é"},
	} {
		b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "x", Type: c.of, Nullable: true}}, nil))
		c.add(b.Field(0))
		b.Field(0).AppendNull()
		in, err := Open(write(t, compress.Codecs.Snappy, b.NewRecordBatch()))
		if err != nil {
			t.Fatal(err)
		}
		err = in.Scan([]int{0}, nil, func(got *table.Chunk) error {
			v := got.Columns[0]
			switch want := c.want.(type) {
			case float64:
				if v.Words != nil || len(v.Numbers) != 2 || v.Numbers[0] != want || v.Numbers[1] == v.Numbers[1] {
					t.Errorf("%s: %v, want %v and NaN", name, v, want)
				}
			case string:
				if v.Numbers != nil || !reflect.DeepEqual(v.Words, []string{want, ""}) {
					t.Errorf("%s: %v, want %q and nothing", name, v, want)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "date" || name == "time" { // as text, a number too
			err := in.(interface {
				ScanText([]int, func(*table.Chunk) error) error
			}).ScanText([]int{0}, func(got *table.Chunk) error {
				if text := string(got.Columns[0].Text); text != fmt.Sprintf("%.0f", c.want) {
					t.Errorf("%s: text %q, want %.0f", name, text, c.want)
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
