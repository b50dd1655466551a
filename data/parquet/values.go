package parquet

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/ringo-ml/ringo/data/table"
)

// known reports whether values of a type can be converted to numbers or words.
func known(t arrow.DataType) bool {
	switch t.ID() {
	case arrow.INT8, arrow.INT16, arrow.INT32, arrow.INT64, arrow.UINT8, arrow.UINT16, arrow.UINT32, arrow.UINT64,
		arrow.FLOAT16, arrow.FLOAT32, arrow.FLOAT64, arrow.BOOL, arrow.STRING, arrow.LARGE_STRING, arrow.STRING_VIEW, arrow.DATE32, arrow.DATE64, arrow.TIMESTAMP:
		return true
	case arrow.DICTIONARY: // strings only: dictionaries of numbers are rare, and Parquet returns numbers instead
		return isText(t.(*arrow.DictionaryType).ValueType)
	}
	return false
}

func isText(t arrow.DataType) bool {
	return t.ID() == arrow.STRING || t.ID() == arrow.LARGE_STRING || t.ID() == arrow.STRING_VIEW
}

// number lists the element types of numeric arrays.
type number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// numbers returns the values of an array; NaN for a missing value.
func numbers[T number](a arrow.Array, values []T) table.Vector {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = float64(v)
	}
	if a.NullN() > 0 {
		for i := range out {
			if a.IsNull(i) {
				out[i] = math.NaN()
			}
		}
	}
	return table.Vector{Numbers: out}
}

// words returns the strings of an array; empty for a missing value.
func words(a arrow.Array, value func(i int) string) table.Vector {
	out := make([]string, a.Len())
	for i := range out {
		if !a.IsNull(i) {
			out[i] = value(i)
		}
	}
	return table.Vector{Words: out}
}

// times marks v as dates or times, in units of the given number of seconds, such as 86400 for days.
func times(v table.Vector, seconds float64) table.Vector {
	v.Seconds = seconds
	return v
}

// vector converts an array of a known type. Dates become days, or milliseconds of the 64-bit type,
// and timestamps the type's units.
func vector(a arrow.Array) table.Vector {
	switch a := a.(type) {
	case *array.Int8:
		return numbers(a, a.Int8Values())
	case *array.Int16:
		return numbers(a, a.Int16Values())
	case *array.Int32:
		return numbers(a, a.Int32Values())
	case *array.Int64:
		return numbers(a, a.Int64Values())
	case *array.Uint8:
		return numbers(a, a.Uint8Values())
	case *array.Uint16:
		return numbers(a, a.Uint16Values())
	case *array.Uint32:
		return numbers(a, a.Uint32Values())
	case *array.Uint64:
		return numbers(a, a.Uint64Values())
	case *array.Float32:
		return numbers(a, a.Float32Values())
	case *array.Float64:
		return numbers(a, a.Float64Values())
	case *array.Date32:
		return times(numbers(a, a.Date32Values()), 24*60*60)
	case *array.Date64:
		return times(numbers(a, a.Date64Values()), 1e-3)
	case *array.Timestamp:
		unit := a.DataType().(*arrow.TimestampType).Unit.Multiplier()
		return times(numbers(a, a.TimestampValues()), unit.Seconds())
	case *array.Float16:
		out := make([]float32, a.Len())
		for i, v := range a.Values() {
			out[i] = v.Float32()
		}
		return numbers(a, out)
	case *array.Boolean:
		return words(a, func(i int) string { return fmt.Sprint(a.Value(i)) })
	case *array.Dictionary:
		texts := a.Dictionary().(interface{ Value(int) string })
		return words(a, func(i int) string { return texts.Value(a.GetValueIndex(i)) })
	case *array.LargeString:
		return words(a, a.Value)
	case *array.StringView:
		return words(a, a.Value)
	case *array.String: // strings in garbage-collected memory
		return words(a, a.Value)
	}
	panic(fmt.Sprintf("values of type %v", a.DataType()))
}

// bounded is an allocator with a limit, because arrow-go trusts the lengths in files. An allocation
// above the limit panics; guarded converts the panic to an error.
type bounded struct {
	memory.Allocator
	remaining atomic.Int64
}

// Limits of a file's decoded data in memory, proportional to the file's size.
const (
	expansion = 1 << 10
	least     = 1 << 26
	most      = 1 << 34
)

// limited returns an allocator for a file of size bytes.
func limited(size int64) *bounded {
	b := &bounded{Allocator: memory.NewGoAllocator()}
	b.remaining.Store(min(max(size*expansion, least), most))
	return b
}

func (b *bounded) take(n int) {
	if n < 0 || b.remaining.Add(-int64(n)) < 0 {
		b.remaining.Add(int64(n))
		panic(fmt.Sprintf("%d bytes are wanted at once, more than a file of its size may have decoded", n))
	}
}

// Allocate implements memory.Allocator.
func (b *bounded) Allocate(size int) []byte {
	b.take(size)
	return b.Allocator.Allocate(size)
}

// Reallocate implements memory.Allocator.
func (b *bounded) Reallocate(size int, old []byte) []byte {
	if grows := size - len(old); grows > 0 {
		b.take(grows)
	} else {
		b.remaining.Add(int64(-grows))
	}
	return b.Allocator.Reallocate(size, old)
}

// Free implements memory.Allocator.
func (b *bounded) Free(old []byte) {
	b.remaining.Add(int64(len(old)))
	b.Allocator.Free(old)
}
