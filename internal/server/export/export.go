// Package export writes a table's weights for serving, without optimizer state, to a file.
//
// Text has a line per row, the key and its weights separated by spaces:
//
//	42 0.25 -1.5
//
// Weights are the shortest decimals that parse to the same float32. Binary is little-endian:
//
//	offset  bytes
//	0       8     "RINGOEMB"
//	8       4     version of the format, 1
//	12      4     dim, weights in a row
//	16      8+4*dim for each row: its key, its weights
//	...     8     number of rows
//	...     4     CRC-32C of all bytes before
//
// Rows have no order.
package export

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/ringo-ml/ringo/internal/crc32c"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/spelling"
)

// Format is the format of an exported file.
type Format string

// The formats.
const (
	Text   Format = "text"
	Binary Format = "binary"
)

// Version is the version of the binary format.
const Version = 1

const magic = "RINGOEMB"

// Rows passes rows to do in batches: keys, and dim weights for each. Rows ends at the first error
// of do, and returns the error.
type Rows func(do func(keys []uint64, weights []float32) error) error

// File writes rows of dim weights to a file, atomically, and returns their number. It replaces a
// file.
func File(path string, format Format, dim int, rows Rows) (n int64, err error) {
	err = dirlock.WriteFile(path, func(w io.Writer) error {
		n, err = Write(w, format, dim, rows)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("export: writing %s: %w", path, err)
	}
	return n, nil
}

// Write writes rows of dim weights and returns their number.
func Write(w io.Writer, format Format, dim int, rows Rows) (n int64, err error) {
	if dim < 1 {
		return 0, fmt.Errorf("export: rows of %d weights: want 1 or more", dim)
	}
	out := &writer{out: bufio.NewWriterSize(w, 1<<20), dim: dim}
	row := out.text
	switch format {
	case Text:
	case Binary:
		row = out.binary
		out.line = append(out.line, magic...)
		out.line = binary.LittleEndian.AppendUint32(out.line, Version)
		out.line = binary.LittleEndian.AppendUint32(out.line, uint32(dim))
	default:
		return 0, fmt.Errorf("export: format %q is not known%s: use %s or %s", format, spelling.Hint(string(format), string(Text), string(Binary)), Text, Binary)
	}
	err = out.flushLine()
	if err == nil {
		err = rows(func(keys []uint64, weights []float32) error {
			if len(weights) != len(keys)*dim {
				return fmt.Errorf("export: %d weights for %d rows of %d", len(weights), len(keys), dim)
			}
			for i, key := range keys {
				row(key, weights[i*dim:][:dim])
				if err := out.flushLine(); err != nil {
					return err
				}
			}
			out.rows += int64(len(keys))
			return nil
		})
	}
	if err == nil && format == Binary {
		err = out.end()
	}
	if err == nil {
		err = out.out.Flush()
	}
	return out.rows, err
}

type writer struct {
	out  *bufio.Writer
	dim  int
	rows int64
	sum  uint32
	line []byte
}

func (w *writer) text(key uint64, weights []float32) {
	w.line = strconv.AppendUint(w.line, key, 10)
	for _, v := range weights {
		w.line = append(w.line, ' ')
		w.line = strconv.AppendFloat(w.line, float64(v), 'g', -1, 32)
	}
	w.line = append(w.line, '\n')
}

func (w *writer) binary(key uint64, weights []float32) {
	w.line = binary.LittleEndian.AppendUint64(w.line, key)
	for _, v := range weights {
		w.line = binary.LittleEndian.AppendUint32(w.line, math.Float32bits(v))
	}
}

func (w *writer) flushLine() error {
	w.sum = crc32c.Update(w.sum, w.line)
	_, err := w.out.Write(w.line)
	w.line = w.line[:0]
	return err
}

func (w *writer) end() error {
	w.line = binary.LittleEndian.AppendUint64(w.line, uint64(w.rows))
	if err := w.flushLine(); err != nil {
		return err
	}
	w.line = binary.LittleEndian.AppendUint32(w.line, w.sum)
	return w.flushLine()
}
