package data

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// FormatError is a fault in the content of a data file. Offset is the byte at
// which it shows, in the decompressed content if the file is compressed.
type FormatError struct {
	File    string
	Offset  int64
	Problem string
}

// Error gives file, byte offset and problem.
func (e *FormatError) Error() string {
	return fmt.Sprintf("%s: byte %d: %s", e.File, e.Offset, e.Problem)
}

// idx is the content of one IDX file of unsigned bytes (the format of MNIST,
// yann.lecun.com/exdb/mnist): two zero bytes, the element type 8, the number
// of dimensions, each dimension as a big-endian uint32, then the bytes.
type idx struct {
	dims []int
	data []byte
}

// maxExpansion is the most that deflate can expand its input (a match of 258
// bytes in 2 bits): it bounds what a compressed file can hold before a byte of
// it is allocated.
const maxExpansion = 1032

// readIDXFile reads a file, compressed if its name ends in .gz. check is as in
// decodeIDX.
func readIDXFile(path string, ndims int, check func(dims []int) error) (*idx, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	if !strings.HasSuffix(path, ".gz") {
		return decodeIDX(f, path, info.Size(), ndims, check)
	}
	z, err := gzip.NewReader(bufio.NewReaderSize(f, 1<<16))
	if err != nil {
		return nil, &FormatError{path, 0, "not a gzip file: " + why(err)}
	}
	return decodeIDX(z, path, info.Size()*maxExpansion, ndims, check)
}

// decodeIDX reads a whole IDX stream of ndims dimensions. limit is the most
// bytes that the stream can hold: dimensions beyond it are refused before
// anything is allocated. check judges the dimensions likewise; its
// dimensionError is given the file and the offset.
func decodeIDX(r io.Reader, name string, limit int64, ndims int, check func(dims []int) error) (*idx, error) {
	header := make([]byte, 4+4*ndims)
	if n, err := io.ReadFull(r, header); err != nil {
		return nil, truncated(name, int64(n), err, fmt.Sprintf("the header is %d bytes long", len(header)))
	}
	want := [4]byte{0, 0, 8, byte(ndims)}
	if got := [4]byte(header); got != want {
		return nil, &FormatError{name, 0, fmt.Sprintf("magic number %#08x, want %#08x (IDX, unsigned bytes, %d dimensions)",
			binary.BigEndian.Uint32(got[:]), binary.BigEndian.Uint32(want[:]), ndims)}
	}
	dims, total, err := dimensions(name, header[4:], limit)
	if err != nil {
		return nil, err
	}
	if err := check(dims); err != nil {
		var d *dimensionError
		if errors.As(err, &d) {
			return nil, &FormatError{name, int64(4 + 4*d.axis), d.problem}
		}
		return nil, err
	}
	data, err := body(r, name, int64(len(header)), total)
	return &idx{dims, data}, err
}

// dimensionError is a dimension that the reader of the set cannot accept.
type dimensionError struct {
	axis    int
	problem string
}

func (e *dimensionError) Error() string { return e.problem }

// dimensions decodes the sizes and their product, which is at most limit.
func dimensions(name string, raw []byte, limit int64) (dims []int, total int64, err error) {
	total = 1
	for i := 0; i < len(raw); i += 4 {
		d := int64(binary.BigEndian.Uint32(raw[i:]))
		offset := int64(4 + i)
		if d == 0 {
			return nil, 0, &FormatError{name, offset, fmt.Sprintf("size 0 in dimension %d", i/4+1)}
		}
		if d > limit/total { // total is at least 1; no product overflows
			return nil, 0, &FormatError{name, offset, fmt.Sprintf(
				"impossible size %d in dimension %d: the file cannot hold more than %d bytes (is it truncated?)", d, i/4+1, limit)}
		}
		total *= d
		dims = append(dims, int(d))
	}
	return dims, total, nil
}

// body reads exactly total bytes, after which the stream must end.
func body(r io.Reader, name string, offset, total int64) ([]byte, error) {
	data := make([]byte, total)
	n, err := io.ReadFull(r, data)
	if err != nil {
		return nil, truncated(name, offset+int64(n), err, fmt.Sprintf("the header promises %d", offset+total))
	}
	var one [1]byte
	switch n, err := io.ReadFull(r, one[:]); {
	case n > 0:
		return nil, &FormatError{name, offset + total, "trailing bytes after the last element"}
	case err != io.EOF:
		return nil, &FormatError{name, offset + total, why(err)}
	}
	return data, nil
}

// truncated says that a stream ended (or broke) too early.
func truncated(name string, offset int64, err error, promise string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &FormatError{name, offset, "truncated: the content ends here, " + promise}
	}
	return &FormatError{name, offset, why(err)}
}

// why names a decompressor's error in the file's terms.
func why(err error) string {
	switch {
	case errors.Is(err, gzip.ErrChecksum):
		return "the gzip checksum does not match: the file is damaged"
	case errors.Is(err, gzip.ErrHeader):
		return "no gzip header here"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "truncated: the file ends too early"
	}
	return err.Error()
}
