package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/ringo-ml/ringo/data/table"
)

var towns = []string{"Bern", "Zug", "Chur", ""} // the last one is missing

// rows is a batch of a table of numbers, words, truth values, a dictionary and a list, from a row on.
func rows(first, n int) arrow.RecordBatch {
	dict := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	s := arrow.NewSchema([]arrow.Field{
		{Name: "area", Type: arrow.PrimitiveTypes.Float32}, {Name: "rooms", Type: arrow.PrimitiveTypes.Uint8, Nullable: true},
		{Name: "town", Type: arrow.BinaryTypes.String, Nullable: true}, {Name: "new", Type: arrow.FixedWidthTypes.Boolean},
		{Name: "kind", Type: dict}, {Name: "list", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64)}, {Name: "price", Type: arrow.PrimitiveTypes.Int64},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, s)
	for i := first; i < first+n; i++ {
		b.Field(0).(*array.Float32Builder).Append(float32(i) / 2)
		if rooms := b.Field(1).(*array.Uint8Builder); i%5 == 4 {
			rooms.AppendNull()
		} else {
			rooms.Append(uint8(i % 5))
		}
		if town := b.Field(2).(*array.StringBuilder); towns[i%4] == "" {
			town.AppendNull()
		} else {
			town.Append(towns[i%4])
		}
		b.Field(3).(*array.BooleanBuilder).Append(i%3 == 0)
		_ = b.Field(4).(*array.BinaryDictionaryBuilder).AppendString(towns[i%2])
		b.Field(5).(*array.ListBuilder).Append(true)
		b.Field(6).(*array.Int64Builder).Append(int64(1000 * (i % 7)))
	}
	return b.NewRecordBatch()
}

// scalars are the columns of rows that can be read: all but the list.
var scalars = []int{0, 1, 2, 3, 4, 6}

// write writes batches as row groups of a file.
func write(t testing.TB, codec compress.Compression, batches ...arrow.RecordBatch) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.parquet")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := pqarrow.NewFileWriter(batches[0].Schema(), f, parquet.NewWriterProperties(parquet.WithCompression(codec)), pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema()))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range batches {
		if err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil { // closes the file, too
		t.Fatal(err)
	}
	return path
}

// cut is n rows in batches of so many.
func cut(n, batch int) (out []arrow.RecordBatch) {
	for at := 0; at < n; at += batch {
		out = append(out, rows(at, min(batch, n-at)))
	}
	return out
}

// asText is the same table as CSV.
func asText(n int) string {
	var b strings.Builder
	b.WriteString("area,rooms,town,new,kind,list,price\n")
	for i := range n {
		rooms := fmt.Sprint(i % 5)
		if i%5 == 4 {
			rooms = ""
		}
		fmt.Fprintf(&b, "%v,%s,%s,%v,%s,,%d\n", float32(i)/2, rooms, towns[i%4], i%3 == 0, towns[i%2], 1000*(i%7))
	}
	return b.String()
}

// encoded are the encoder and the samples of a table.
func encoded(t *testing.T, in table.Reader, choice table.Options) (*table.Encoder, *table.Samples) {
	t.Helper()
	fails := func(err error) error { return err }
	e, err := table.InferEncoder(in, choice, func(row int64) bool { return row%10 == 3 }, fails)
	if err != nil {
		t.Fatal(err)
	}
	all := new(table.Samples)
	if err := e.Encode(in, true, 1<<30, func(int64) *table.Samples { return all }, fails); err != nil {
		t.Fatal(err)
	}
	return e, all
}

// A table has the encoding and the samples of the same table as CSV, whatever its row groups and their compression.
func TestTablesAreAsText(t *testing.T) {
	const n = 1000
	for _, goal := range []string{"price", "kind", "new"} {
		choice := table.Options{Target: goal, Schema: table.Schema{"list": table.Ignore}}
		text, err := table.OpenCSV("twin.csv", func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(asText(n))), nil })
		if err != nil {
			t.Fatal(err)
		}
		e, want := encoded(t, text, choice)
		for group, codec := range map[int]compress.Compression{64: compress.Codecs.Snappy, 999: compress.Codecs.Zstd, n: compress.Codecs.Gzip, 2 * n: compress.Codecs.Uncompressed} {
			in, err := Open(write(t, codec, cut(n, group)...))
			if err != nil {
				t.Fatal(err)
			}
			own, got := encoded(t, in, choice)
			if own.String() != e.String() || !reflect.DeepEqual(got, want) || got.N != n {
				t.Errorf("%s, %v in groups of %d: %v, want %v", goal, codec, group, own, e)
			}
		}
	}
}

// Chunks come in the order of rows, columns in the order that was asked for, and an error of who takes them ends the pass,
// with its goroutines.
func TestOrder(t *testing.T) {
	in, err := Open(write(t, compress.Codecs.Snappy, cut(5000, 100)...))
	if err != nil {
		t.Fatal(err)
	}
	next := 0
	err = in.Scan([]int{6, 0}, nil, func(c *table.Chunk) error {
		for i, v := range c.Columns[1].Numbers {
			if v != float64(next)/2 || c.Columns[0].Numbers[i] != float64(1000*(next%7)) || c.First+int64(i) != int64(next) {
				t.Fatalf("row %d has %v", next, v)
			}
			next++
		}
		return nil
	})
	if err != nil || next != 5000 {
		t.Errorf("%d rows, %v", next, err)
	}
	before, enough := runtime.NumGoroutine(), errors.New("enough")
	if err := in.Scan([]int{0}, nil, func(*table.Chunk) error { return enough }); err != enough {
		t.Error(err)
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines, %d before", after, before)
	}
}

// A group of more rows than a batch comes in several chunks, and columns without a row in none.
func TestSizesOfGroups(t *testing.T) {
	for _, n := range []int{0, 1, batchRows, batchRows + 1} {
		in, err := Open(write(t, compress.Codecs.Snappy, rows(0, n)))
		if err != nil {
			t.Fatal(err)
		}
		got, chunks := 0, 0
		err = in.Scan(scalars, nil, func(c *table.Chunk) error {
			got, chunks = got+c.N, chunks+1
			return nil
		})
		if want := (n + batchRows - 1) / batchRows; err != nil || got != n || chunks != want {
			t.Errorf("%d rows in %d chunks, want %d in %d: %v", got, chunks, n, want, err)
		}
	}
}

// What cannot be read is an error that names file and column.
func TestRefused(t *testing.T) {
	path := write(t, compress.Codecs.Snappy, rows(0, 3))
	in, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Scan([]int{5}, nil, nil); err == nil || !strings.Contains(err.Error(), path+`: column "list": values of type list`) {
		t.Error(err)
	}
	twice := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int8}, {Name: "a", Type: arrow.PrimitiveTypes.Int8}}, nil)
	if _, err := Open(write(t, compress.Codecs.Snappy, array.NewRecordBuilder(memory.DefaultAllocator, twice).NewRecordBatch())); err == nil || !strings.Contains(err.Error(), `columns 1 and 2 are both called "a": rename one`) {
		t.Error(err)
	}
	other, err := os.ReadFile(write(t, compress.Codecs.Snappy, array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(twice.Fields()[:1], nil)).NewRecordBatch()))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, other, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := in.Scan([]int{0}, nil, nil); err == nil || !strings.Contains(err.Error(), "it has 1 columns, and had 7") {
		t.Error(err)
	}
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "folder") {
		t.Error(err)
	}
}

// What a file says of Arrow's own schema is not looked at: a damaged one would make arrow-go allocate without limit.
func TestSchemaOfArrowIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.parquet")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := pqarrow.NewFileWriter(rows(0, 0).Schema(), f, parquet.NewWriterProperties(), pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(rows(0, 10)), w.AppendKeyValueMetadata("ARROW:schema", "junk"), w.Close()); err != nil {
		t.Fatal(err)
	}
	if err := pass(t, path); err != nil {
		t.Error(err)
	}
}

// pass opens a file and reads what can be read of it. Errors that name no file are found.
func pass(t testing.TB, path string) error { return passOf(t, path, Open) }

func passOf(t testing.TB, path string, open func(string) (table.Reader, error)) error {
	in, err := open(path)
	if err == nil {
		err = in.Scan(scalars[:min(len(scalars), len(in.Columns()))], nil, func(c *table.Chunk) error {
			for _, v := range c.Columns {
				if max(len(v.Numbers), len(v.Words)) != c.N {
					t.Fatalf("%d numbers and %d words in a chunk of %d rows", len(v.Numbers), len(v.Words), c.N)
				}
			}
			return nil
		})
	}
	var fault *table.Fault
	if err != nil && (!errors.As(err, &fault) || fault.File != path) {
		t.Fatal(err)
	}
	return err
}

// A file that is cut anywhere is an error that names it; one with another byte anywhere is one or has rows. Nothing panics,
// and nothing takes more memory than the limit.
func TestDamagedFiles(t *testing.T) {
	for _, codec := range []compress.Compression{compress.Codecs.Snappy, compress.Codecs.Uncompressed} {
		path := write(t, codec, cut(40, 20)...)
		damage(t, path, func() error { return pass(t, path) })
	}
}

// damage reads a file that was cut, which must fail, and changed, at many places.
func damage(t *testing.T, path string, read func() error) {
	t.Helper()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(content []byte) {
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	step := max(1, len(whole)/damages)
	for n := 0; n < len(whole); n += step {
		if replace(whole[:n]); read() == nil {
			t.Errorf("%s: %d bytes of %d were read", path, n, len(whole))
		}
		for _, bits := range []byte{0x01, 0x41, 0x80, 0xff} {
			other := bytes.Clone(whole)
			other[n] ^= bits
			replace(other)
			_ = read()
		}
	}
}

// damages is at how many offsets a file is damaged.
var damages = 150

// FuzzOpen reads anything as a Parquet file.
func FuzzOpen(f *testing.F) {
	whole, err := os.ReadFile(write(f, compress.Codecs.Snappy, cut(40, 20)...))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte("PAR1"))
	f.Add([]byte("PAR1\xff\xff\xff\x7fPAR1"))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "x.parquet")
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
		_ = pass(t, path)
	})
}

// More memory than a file of its size may have decoded is refused, and what is given back can be taken again.
func TestMemoryIsBounded(t *testing.T) {
	b, r := limited(10), &reader{name: "x"}
	kept := b.Allocate(least - 10)
	err := r.guarded(func() error { b.Allocate(11); return nil })
	if err == nil || !strings.Contains(err.Error(), "11 bytes are wanted at once") {
		t.Error(err)
	}
	kept = b.Reallocate(5, kept)
	b.Free(kept)
	if left := b.remaining.Load(); left != least {
		t.Errorf("%d bytes are left of %d", left, least)
	}
}

// A page that says it has more values than its row group has rows is an error: arrow-go would give a column longer than its batch.
func TestColumnsAreAsLongAsTheirBatch(t *testing.T) {
	path := write(t, compress.Codecs.Uncompressed, rows(0, 20))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	header := []byte{0x2c, 0x15, 2 * 20} // of a data page in Thrift's compact form: its struct, and how many values it has
	longer := 0
	for at := 0; ; at++ {
		next := bytes.Index(whole[at:], header)
		if next < 0 {
			break
		}
		at += next
		other := bytes.Clone(whole)
		other[at+2] = 2 * 23
		if err := os.WriteFile(path, other, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := pass(t, path); err != nil && strings.Contains(err.Error(), "has 23 values for 20 rows") {
			longer++
		}
	}
	if longer == 0 {
		t.Error("no page that says it has 23 values was told of as a column longer than its batch")
	}
}

// Places of rows and values of other columns are known beside a column of an unsupported type.
func TestPlacesBesideUnsupportedColumn(t *testing.T) {
	path := write(t, compress.Codecs.Snappy, cut(100, 40)...)
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for columns, want := range map[int]string{3: "[area=21 rooms=2 town=Chur]", 6: "[area=21 rooms=2 town=Chur new=true kind=Bern price=0]"} {
		places, values := table.Rows(r, []int64{42}, columns)
		if !strings.HasPrefix(places[0], path+": row 4") || fmt.Sprint(values[0]) != want {
			t.Errorf("%d columns: %q, %v, want %s", columns, places, values, want)
		}
	}
}
