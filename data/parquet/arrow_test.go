package parquet

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/ringo-ml/ringo/data/table"
)

// writeArrow writes batches as an Arrow file or as a stream.
func writeArrow(t testing.TB, stream bool, batches []arrow.RecordBatch, options ...ipc.Option) string {
	t.Helper()
	var b bytes.Buffer
	var w interface {
		Write(arrow.RecordBatch) error
		Close() error
	}
	options = append(options, ipc.WithSchema(batches[0].Schema()))
	name, err := "x.arrows", error(nil)
	if w = ipc.NewWriter(&b, options...); !stream {
		name = "x.arrow"
		w, err = ipc.NewFileWriter(&b, options...)
	}
	for _, batch := range batches {
		if err == nil {
			err = w.Write(batch)
		}
	}
	if err == nil {
		err = w.Close()
	}
	path := filepath.Join(t.TempDir(), name)
	if err == nil {
		err = os.WriteFile(path, b.Bytes(), 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// arrowKinds are the ways in which the same table may be written.
var arrowKinds = map[string]struct {
	stream  bool
	options []ipc.Option
}{
	"file": {}, "stream": {stream: true}, "stream of deltas": {true, []ipc.Option{ipc.WithDictionaryDeltas(true)}},
	"zstd": {options: []ipc.Option{ipc.WithZstd()}}, "lz4": {stream: true, options: []ipc.Option{ipc.WithLZ4()}},
}

// A table has the encoding and the samples of the same table as CSV, as a file or a stream, compressed or not, whatever its batches.
func TestArrowIsAsText(t *testing.T) {
	const n = 500
	choice := table.Options{Target: "kind", Schema: table.Schema{"list": table.Ignore}}
	text, err := table.OpenCSV("twin.csv", func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(asText(n))), nil })
	if err != nil {
		t.Fatal(err)
	}
	e, want := encoded(t, text, choice)
	for name, kind := range arrowKinds {
		for _, batch := range []int{64, n} {
			in, err := OpenArrow(writeArrow(t, kind.stream, cut(n, batch), kind.options...))
			if err != nil {
				t.Fatal(name, err)
			}
			if own, got := encoded(t, in, choice); own.String() != e.String() || !reflect.DeepEqual(got, want) || got.N != n {
				t.Errorf("%s in batches of %d: %v, want %v", name, batch, own, e)
			}
		}
	}
}

// Texts are the same as any of Arrow's types for them, long ones and missing ones, too, and batches of more rows than a chunk come in
// several.
func TestArrowTexts(t *testing.T) {
	const n = batchRows + 3
	texts := []string{"", "short", strings.Repeat("longer than a view holds itself ", 3), "Zug"}
	column := func(dt arrow.DataType, n int) arrow.Array {
		b := array.NewBuilder(memory.DefaultAllocator, dt)
		for i := range n {
			if texts[i%4] == "" {
				b.AppendNull()
			} else if err := b.AppendValueFromString(texts[i%4]); err != nil {
				t.Fatal(err)
			}
		}
		return b.NewArray()
	}
	indices := array.NewUint16Builder(memory.DefaultAllocator)
	for i := range n {
		if i%4 == 0 {
			indices.AppendNull()
		} else {
			indices.Append(uint16(i % 4))
		}
	}
	at := indices.NewArray()
	var columns []arrow.Array
	var fields []arrow.Field
	for i, dt := range []arrow.DataType{arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.StringView} {
		dictionary := &arrow.DictionaryType{IndexType: at.DataType(), ValueType: dt}
		columns = append(columns, column(dt, n), array.NewDictionaryArray(dictionary, at, column(dt, 4)))
		fields = append(fields, arrow.Field{Name: string(rune('a' + 2*i)), Type: dt, Nullable: true}, arrow.Field{Name: string(rune('b' + 2*i)), Type: dictionary, Nullable: true})
	}
	batch := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, n)
	in, err := OpenArrow(writeArrow(t, false, []arrow.RecordBatch{batch}))
	if err != nil {
		t.Fatal(err)
	}
	next, chunks := 0, 0
	err = in.Scan([]int{5, 4, 3, 2, 1, 0}, nil, func(c *table.Chunk) error {
		chunks++
		for i := range c.N {
			for _, v := range c.Columns {
				if v.Words[i] != texts[next%4] {
					t.Fatalf("row %d has %q, want %q", next, v.Words[i], texts[next%4])
				}
			}
			next++
		}
		return nil
	})
	if err != nil || next != n || chunks != 2 {
		t.Errorf("%d rows in %d chunks, %v", next, chunks, err)
	}
}

// What cannot be read is an error that names file and column, and says what to do.
func TestArrowRefused(t *testing.T) {
	path := writeArrow(t, false, cut(3, 3))
	in, err := OpenArrow(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Scan([]int{5}, nil, nil); err == nil || !strings.Contains(err.Error(), path+`: column "list": values of type list`) {
		t.Error(err)
	}
	for content, says := range map[string]string{
		"FEA1 and more":         "a Feather file of version 1",
		"":                      "damaged, truncated or not an Arrow file",
		"ARROW1\x00\x00":        "it has no footer",
		"a,b\n1,2\n3,4\n5,6\n":  "no message of Arrow begins here",
		"\x10\x00\x00\x00 old ": "one of before version 0.15",
	} {
		other := filepath.Join(t.TempDir(), "x.feather")
		if err := os.WriteFile(other, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenArrow(other); err == nil || !strings.Contains(err.Error(), says) || !strings.HasPrefix(err.Error(), other) {
			t.Errorf("%q: %v, want %q", content, err, says)
		}
	}
}

// passArrow is pass of OpenArrow.
func passArrow(t testing.TB, path string) error { return passOf(t, path, OpenArrow) }

// A file or stream that is cut anywhere is an error that names it; one with another byte anywhere is one or has rows. Nothing panics,
// and nothing takes more memory than the limit.
func TestDamagedArrow(t *testing.T) {
	for name, kind := range arrowKinds {
		t.Run(name, func(t *testing.T) {
			path := writeArrow(t, kind.stream, cut(40, 20), kind.options...)
			damage(t, path, func() error { return passArrow(t, path) })
		})
	}
}

// Lists of metadata that say they have more elements than there are bytes, batches of more rows than values and frames that want a large
// window cost nothing.
func TestLyingArrow(t *testing.T) {
	plain, packed := writeArrow(t, true, cut(20, 20)), writeArrow(t, true, cut(20, 20), ipc.WithZstd())
	for path, change := range map[string]func(b []byte, at int) bool{
		plain: func(b []byte, at int) bool { // each number that could be the length of a list
			if n := binary.LittleEndian.Uint32(b[at:]); n == 0 || n > 40 {
				return false
			}
			binary.LittleEndian.PutUint32(b[at:], math.MaxInt32)
			return true
		},
		packed: func(b []byte, at int) bool { // each frame of zstd: a window of 2 GiB
			if binary.LittleEndian.Uint32(b[at:]) != 0xfd2fb528 {
				return false
			}
			b[at+4], b[at+5] = 0, 21<<3
			return true
		},
	} {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		changed := 0
		for at := 0; at+6 < len(whole); at += 4 {
			other := bytes.Clone(whole)
			if !change(other, at) {
				continue
			}
			changed++
			if err := os.WriteFile(path, other, 0o666); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&before)
			_ = passArrow(t, path)
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > least {
				t.Errorf("%s: byte %d: %d bytes were allocated", filepath.Base(path), at, took)
			}
		}
		if changed == 0 {
			t.Error("nothing was changed")
		}
	}
}

// Texts that many fields, or their keys and values, share cost what as many texts do: who decodes them copies each.
func TestSharedTexts(t *testing.T) {
	const headerSchema, typeInt = 1, 2
	schema := func(fields, keys, text int) []byte {
		b := flatbuffers.NewBuilder(0)
		shared := b.CreateString(strings.Repeat("x", text))
		list := func(n int, of func() flatbuffers.UOffsetT) flatbuffers.UOffsetT {
			at := make([]flatbuffers.UOffsetT, n)
			for i := range at {
				at[i] = of()
			}
			return b.CreateVectorOfTables(at)
		}
		pairs := list(keys, func() flatbuffers.UOffsetT {
			b.StartObject(2)
			b.PrependUOffsetTSlot(0, shared, 0)
			b.PrependUOffsetTSlot(1, shared, 0)
			return b.EndObject()
		})
		all := list(fields, func() flatbuffers.UOffsetT {
			b.StartObject(7)
			b.PrependUOffsetTSlot(0, shared, 0)
			b.PrependByteSlot(2, typeInt, 0)
			return b.EndObject()
		})
		b.StartObject(4)
		b.PrependUOffsetTSlot(1, all, 0)
		b.PrependUOffsetTSlot(2, pairs, 0)
		header := b.EndObject()
		b.StartObject(5)
		b.PrependByteSlot(1, headerSchema, 0)
		b.PrependUOffsetTSlot(2, header, 0)
		b.Finish(b.EndObject())
		return b.FinishedBytes()
	}
	for _, c := range []struct {
		fields, keys, text int
		fits               bool
	}{{3, 2, 5, true}, {1, 0, 5000, true}, {1000, 0, 5000, false}, {1, 500, 5000, false}} {
		if _, err := new(dictionaries).check(schema(c.fields, c.keys, c.text)); (err == nil) != c.fits {
			t.Errorf("%d fields, %d keys, texts of %d bytes: %v", c.fields, c.keys, c.text, err)
		}
	}
}

// FuzzOpenArrow reads anything as Arrow.
func FuzzOpenArrow(f *testing.F) {
	for _, kind := range arrowKinds {
		whole, err := os.ReadFile(writeArrow(f, kind.stream, cut(40, 20), kind.options...))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(whole)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "x.arrow")
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
		_ = passArrow(t, path)
	})
}
