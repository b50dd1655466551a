package images

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"strings"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// idx is the content of an IDX file of unsigned bytes, the format of MNIST
// (yann.lecun.com/exdb/mnist): two zero bytes, the element type 8, the number of dimensions, each
// dimension as a big-endian uint32, then the bytes.
type idx struct {
	dims []int
	data []byte
}

// idxStream is an open IDX file.
type idxStream struct {
	io.Reader
	name  string
	limit int64 // maximum length in bytes
	exact bool  // limit is the length
}

// readIDXFile reads a file, compressed if its name ends in .gz. See decodeIDX for check.
func readIDXFile(path string, ndims int, check func(dims []int) error) (*idx, error) {
	f, err := pathname.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !strings.HasSuffix(path, ".gz") {
		return decodeIDX(idxStream{f, path, info.Size(), true}, ndims, check)
	}
	z, err := gzip.NewReader(bufio.NewReaderSize(f, 1<<16))
	if err != nil {
		return nil, datafile.Errorf(path, 0, "%s", datafile.WhyNoGzip(err))
	}
	return decodeIDX(idxStream{z, path, info.Size() * datafile.MaxExpansion, false}, ndims, check)
}

// decodeIDX reads an IDX stream of ndims dimensions. Function check validates the dimensions before
// memory is allocated; decodeIDX adds file and offset to its dimensionError.
func decodeIDX(s idxStream, ndims int, check func(dims []int) error) (*idx, error) {
	header := make([]byte, 4+4*ndims)
	if n, err := io.ReadFull(s, header); err != nil {
		return nil, s.truncated(int64(n), err, int64(len(header)), "header")
	}
	want := [4]byte{0, 0, 8, byte(ndims)}
	if got := [4]byte(header); got != want {
		return nil, s.fault(0, "magic number %#08x, want %#08x (IDX, unsigned bytes, %d dimensions)",
			binary.BigEndian.Uint32(got[:]), binary.BigEndian.Uint32(want[:]), ndims)
	}
	dims, total, err := s.dimensions(header[4:])
	if err != nil {
		return nil, err
	}
	if err := check(dims); err != nil {
		var d *dimensionError
		if errors.As(err, &d) {
			return nil, s.fault(int64(4+4*d.axis), "%s", d.problem)
		}
		return nil, err
	}
	data, err := s.body(int64(len(header)), total)
	if err != nil {
		return nil, err
	}
	return &idx{dims, data}, nil
}

func (s idxStream) fault(offset int64, format string, args ...any) error {
	return datafile.Errorf(s.name, offset, format, args...)
}

// dimensionError is the error of a dimension that the set does not allow.
type dimensionError struct {
	axis    int
	problem string
}

func (e *dimensionError) Error() string { return e.problem }

// dimensions decodes the sizes and returns their product.
func (s idxStream) dimensions(raw []byte) (dims []int, total int64, err error) {
	total = 1
	for i := 0; i < len(raw); i += 4 {
		d := int64(binary.BigEndian.Uint32(raw[i:]))
		if d == 0 || d > datafile.MaxElements/total { // total >= 1: no overflow
			return nil, 0, s.fault(int64(4+i), "impossible size %d in dimension %d", d, i/4+1)
		}
		total *= d
		dims = append(dims, int(d))
	}
	return dims, total, nil
}

// body reads total bytes, and expects the end of the stream.
func (s idxStream) body(offset, total int64) ([]byte, error) {
	end := offset + total
	switch {
	case end > s.limit && s.exact:
		return nil, s.truncated(s.limit, io.ErrUnexpectedEOF, end, "file")
	case end > s.limit:
		return nil, s.fault(4, "impossible size: %d bytes promised, but a compressed file of this length holds at most %d", end, s.limit)
	}
	data := make([]byte, total)
	if n, err := io.ReadFull(s, data); err != nil {
		return nil, s.truncated(offset+int64(n), err, end, "file")
	}
	var one [1]byte
	switch n, err := io.ReadFull(s, one[:]); {
	case n > 0:
		return nil, s.fault(end, "trailing bytes after the last element")
	case err != io.EOF:
		return nil, s.fault(end, "%s", datafile.ReasonOf(err))
	}
	return data, nil
}

// truncated returns the error of a stream that ended early or failed.
func (s idxStream) truncated(offset int64, err error, promised int64, of string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return s.fault(offset, "truncated: the content ends here, the %s is to be %d bytes long", of, promised)
	}
	return s.fault(offset, "%s", datafile.ReasonOf(err))
}
