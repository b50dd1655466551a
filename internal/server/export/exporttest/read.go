// Package exporttest reads the binary files of package export, for tests.
package exporttest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/ringo-ml/ringo/internal/crc32c"
	"github.com/ringo-ml/ringo/internal/server/export"
)

const (
	magic  = "RINGOEMB"
	header = 16
	footer = 12
)

// Read decodes export.Write's binary format, of size bytes, and calls do with each row; weights are
// valid during the call only. Damage is an error at the end of the file at the latest: rows passed
// before may be wrong.
func Read(r io.Reader, size int64, do func(key uint64, weights []float32) error) (dim int, rows int64, err error) {
	in, sum := bufio.NewReaderSize(r, 1<<20), uint32(0)
	next := func(b []byte) error {
		_, err := io.ReadFull(in, b)
		sum = crc32c.Update(sum, b)
		return err
	}
	fail := func(format string, a ...any) (int, int64, error) {
		return 0, 0, fmt.Errorf("export: reading: "+format, a...)
	}
	var head [header]byte
	if err := next(head[:]); err != nil {
		return fail("%w", err)
	}
	if string(head[:8]) != magic {
		return fail("it does not begin with %q", magic)
	}
	if v := binary.LittleEndian.Uint32(head[8:]); v != export.Version {
		return fail("format version %d, this program reads version %d", v, export.Version)
	}
	width := int64(binary.LittleEndian.Uint32(head[12:]))
	body := size - header - footer
	if width < 1 || body < 0 || body%(8+4*width) != 0 {
		return fail("%d bytes do not hold whole rows of %d weights", size, width)
	}
	if rows = body / (8 + 4*width); rows > 0 {
		b, weights := make([]byte, 8+4*width), make([]float32, width)
		for range rows {
			if err := next(b); err != nil {
				return fail("%w", err)
			}
			for i := range weights {
				weights[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[8+4*i:]))
			}
			if err := do(binary.LittleEndian.Uint64(b), weights); err != nil {
				return 0, 0, err
			}
		}
	}
	var count [8]byte
	if err := next(count[:]); err != nil {
		return fail("%w", err)
	}
	want := sum
	var check [4]byte
	if err := next(check[:]); err != nil {
		return fail("%w", err)
	}
	if n, has := binary.LittleEndian.Uint64(count[:]), binary.LittleEndian.Uint32(check[:]); n != uint64(rows) || has != want {
		return fail("it is damaged: %d rows with the checksum %08x, it says %d and %08x", rows, want, n, has)
	}
	return int(width), rows, nil
}
