package parquet

import (
	"fmt"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/ringo-ml/ringo/data/table"
)

// form is how a pass over a file converts values.
type form struct {
	known     func(arrow.DataType) bool
	supported string // known types, for errors
	vector    func(arrow.Array) (table.Vector, error)
}

// plain is the form of Scan, textual the form of ScanText. Both are constant.
var (
	plain = form{known, "numbers, texts, dates or truth values; data.schema can ignore the column",
		func(a arrow.Array) (table.Vector, error) { return vector(a), nil }}
	textual = form{knownText, "numbers, texts, dates or truth values, or lists of them", asTexts}
)

// knownText reports whether values of a type can be converted to text: those of known types, and
// lists of them.
func knownText(t arrow.DataType) bool {
	switch t.ID() {
	case arrow.LIST, arrow.LARGE_LIST, arrow.FIXED_SIZE_LIST:
		return known(t.(arrow.ListLikeType).Elem())
	}
	return known(t)
}

// mostText limits the bytes of text of a column per batch: a dictionary can repeat a long word in
// every row.
const mostText = 1 << 30

// mostTexts limits the values of a column per batch, because mostText does not limit empty and
// missing values. At this limit the positions of values need as much memory as mostText.
const mostTexts = mostText / 8

// asTexts converts an array of a known type to text.
func asTexts(a arrow.Array) (table.Vector, error) {
	var out table.Vector
	list, ok := a.(array.ListLike)
	if !ok {
		err := appendTexts(&out, a, 0, a.Len())
		return out, err
	}
	values := list.ListValues()
	out.Rows = make([]int, a.Len())
	last := int64(0)
	for row := range out.Rows {
		lo, hi := list.ValueOffsets(row)
		if lo < last || hi < lo || hi > int64(values.Len()) { // missing lists count, too: a later list could otherwise repeat earlier values
			return out, fmt.Errorf("a list has values %d to %d of %d, the one before ends at %d", lo, hi, values.Len(), last)
		}
		if last = hi; !a.IsNull(row) {
			if err := appendTexts(&out, values, int(lo), int(hi)); err != nil {
				return out, err
			}
		}
		out.Rows[row] = len(out.Ends)
	}
	return out, nil
}

// rowsOf returns the number of rows of a vector.
func rowsOf(v *table.Vector) int {
	if v.Rows != nil {
		return len(v.Rows)
	}
	return max(len(v.Numbers), len(v.Words), len(v.Ends))
}

// appendTexts appends values [lo, hi) of an array; a missing value is empty.
func appendTexts(out *table.Vector, a arrow.Array, lo, hi int) error {
	if lo == hi {
		return nil
	}
	if len(out.Ends)+hi-lo > mostTexts {
		return fmt.Errorf("more than %d values in lists of one batch: write smaller row groups or batches", mostTexts)
	}
	write := texter(a)
	for i := lo; i < hi; i++ {
		if !a.IsNull(i) {
			out.Text = write(out.Text, i)
		}
		out.Ends = append(out.Ends, len(out.Text))
		if len(out.Text) > mostText {
			return fmt.Errorf("more than %d bytes of text in %d rows: write smaller row groups or batches", mostText, a.Len())
		}
	}
	return nil
}

// texter returns a function that appends value i of an array of a known type.
func texter(a arrow.Array) func(to []byte, i int) []byte {
	switch a := a.(type) {
	case *array.Int8:
		return signed(a.Int8Values())
	case *array.Int16:
		return signed(a.Int16Values())
	case *array.Int32:
		return signed(a.Int32Values())
	case *array.Int64:
		return signed(a.Int64Values())
	case *array.Date32:
		return signed(a.Date32Values())
	case *array.Date64:
		return signed(a.Date64Values())
	case *array.Timestamp:
		return signed(a.TimestampValues())
	case *array.Uint8:
		return unsigned(a.Uint8Values())
	case *array.Uint16:
		return unsigned(a.Uint16Values())
	case *array.Uint32:
		return unsigned(a.Uint32Values())
	case *array.Uint64:
		return unsigned(a.Uint64Values())
	case *array.Float16:
		return func(to []byte, i int) []byte {
			return strconv.AppendFloat(to, float64(a.Value(i).Float32()), 'g', -1, 32)
		}
	case *array.Float32:
		return func(to []byte, i int) []byte { return strconv.AppendFloat(to, float64(a.Value(i)), 'g', -1, 32) }
	case *array.Float64:
		return func(to []byte, i int) []byte { return strconv.AppendFloat(to, a.Value(i), 'g', -1, 64) }
	case *array.Boolean:
		return func(to []byte, i int) []byte {
			if a.Value(i) {
				return append(to, '1')
			}
			return append(to, '0')
		}
	case *array.Dictionary:
		texts := a.Dictionary().(interface{ Value(int) string })
		return func(to []byte, i int) []byte { return append(to, texts.Value(a.GetValueIndex(i))...) }
	case interface{ Value(int) string }: // strings
		return func(to []byte, i int) []byte { return append(to, a.Value(i)...) }
	}
	panic(fmt.Sprintf("values of type %v", a.DataType()))
}

func signed[T ~int8 | ~int16 | ~int32 | ~int64](values []T) func([]byte, int) []byte {
	return func(to []byte, i int) []byte { return strconv.AppendInt(to, int64(values[i]), 10) }
}

func unsigned[T ~uint8 | ~uint16 | ~uint32 | ~uint64](values []T) func([]byte, int) []byte {
	return func(to []byte, i int) []byte { return strconv.AppendUint(to, uint64(values[i]), 10) }
}
