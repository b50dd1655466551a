package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// OpenArrow opens an Arrow file (.arrow, or .feather version 2) or stream (.arrows) as a table with
// the schema's columns; the first bytes select the format. A damaged file, or a file without footer
// or end mark, returns a *table.Fault here or in a scan. Unsupported column types return an error
// when a scan requests the column.
func OpenArrow(path string) (table.Reader, error) {
	t := &arrowReader{reader{name: path, kind: "an Arrow"}}
	t.pass = t.batches
	err := t.with(func(in *ipc.Reader, _ *messages) error {
		for _, f := range in.Schema().Fields() {
			t.names = append(t.names, f.Name)
		}
		return table.CheckNames(path, t.names)
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// arrowReader is an Arrow file or stream as a table.
type arrowReader struct{ reader }

// with opens the file, reads the schema and calls use.
func (t *arrowReader) with(use func(*ipc.Reader, *messages) error) error {
	f, err := pathname.Open(t.name)
	if err != nil {
		return err
	}
	defer f.Close()
	var m *messages
	var in *ipc.Reader
	err = t.guarded(func() error {
		if m, err = openMessages(f); err != nil {
			return err
		}
		in, err = ipc.NewReaderFromMessageReader(m, ipc.WithAllocator(m.mem))
		return err
	})
	if err != nil {
		return err
	}
	defer in.Release()
	return use(in, m)
}

const (
	arrowMagic = "ARROW1"   // first and last bytes of a file
	arrowHead  = 8          // bytes of the first magic with padding
	arrowTail  = 4 + 6      // bytes after a footer: length and magic
	featherOne = "FEA1"     // first bytes of Feather version 1, another format with the same extension
	batchSlot  = 3          // field of a footer with the record batches
	endMark    = 0xffffffff // precedes a message; older writers have the length here
)

// openMessages locates the messages of a file or stream.
func openMessages(f *os.File) (*messages, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	m := &messages{r: f, end: info.Size(), mem: limited(info.Size()), listed: -1}
	first := make([]byte, min(m.end, arrowHead))
	if _, err := f.ReadAt(first, 0); err != nil {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(first, []byte(featherOne)):
		return nil, errors.New("a Feather file of version 1: write it as version 2, which is Arrow's own")
	case !bytes.HasPrefix(first, []byte(arrowMagic)):
		return m, nil
	}
	m.at = arrowHead
	return m, m.footer()
}

func (t *arrowReader) batches(want []int, as form, visit func(*table.Chunk) error) error {
	return t.with(func(in *ipc.Reader, m *messages) error {
		if err := t.columns(in.Schema().Fields(), want, as); err != nil {
			return err
		}
		first := int64(0)
		for {
			var batch arrow.RecordBatch
			err := t.guarded(func() (err error) {
				if batch, err = in.Read(); errors.Is(err, io.EOF) {
					return m.complete()
				}
				return err
			})
			if err != nil || batch == nil {
				return err
			}
			if batch.NumRows() > table.MaxRows-first {
				return t.fault("", "more than %d rows", table.MaxRows)
			}
			if err := t.batch(batch, want, as, first, visit); err != nil {
				return err
			}
			first += batch.NumRows()
		}
	})
}

// batch passes a record batch to visit in chunks.
func (t *arrowReader) batch(batch arrow.RecordBatch, want []int, as form, first int64, visit func(*table.Chunk) error) error {
	for at := int64(0); at < batch.NumRows(); at += batchRows {
		to := min(at+batchRows, batch.NumRows())
		c := table.Chunk{N: int(to - at), First: first + at, Columns: make([]table.Vector, len(want))}
		err := t.guarded(func() error {
			for i, n := range want {
				part := array.NewSlice(batch.Column(n), at, to)
				err := whole(part)
				if err == nil {
					c.Columns[i], err = as.vector(part)
				}
				if err != nil {
					return fmt.Errorf("row %d: column %q: %w", c.First, t.names[n], err)
				}
				if rowsOf(&c.Columns[i]) != c.N {
					return fmt.Errorf("row %d: column %q has not as many values as its batch has rows", c.First, t.names[n])
				}
				part.Release()
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := visit(&c); err != nil {
			return err
		}
	}
	return nil
}

// whole returns an error for bool arrays shorter than declared: arrow-go does not compare the bits
// with the number of values.
func whole(a arrow.Array) error {
	if l, ok := a.(array.ListLike); ok {
		return whole(l.ListValues())
	}
	b, ok := a.(*array.Boolean)
	if !ok {
		return nil
	}
	values, last := b.Data().Buffers()[1], b.Offset()+b.Len()
	if values == nil || last > 8*values.Len() {
		return fmt.Errorf("%d truth values are said to be there, and are not", last)
	}
	return nil
}
