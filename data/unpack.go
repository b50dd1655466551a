package data

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/ringo-ml/ringo/internal/pathname"
)

// packings are the endings of compressed files' names.
var packings = []string{".gz", ".zst", ".zstd"} // never written

// unpackedName is a file's name without the ending that says how it is
// compressed, which is "" of a plain file.
func unpackedName(name string) (plain, packing string) {
	for _, p := range packings {
		if n := len(name) - len(p); n > 0 && strings.EqualFold(name[n:], p) {
			return name[:n], p
		}
	}
	return name, ""
}

// Packed reports whether a file's name says that OpenText unpacks it.
func Packed(path string) bool {
	_, packing := unpackedName(path)
	return packing != ""
}

// zstdWindow is the most memory that a zstd file may ask for: that of
// `zstd --long=27`.
const zstdWindow = 1 << 27

// OpenText opens a file for reading, through gzip if its name ends in .gz, or
// zstd if it ends in .zst or .zstd. An error of its content is a *FormatError.
// Decompression takes the reading goroutine alone.
func OpenText(path string) (io.ReadCloser, error) {
	_, packing := unpackedName(path)
	f, err := pathname.Open(path)
	if err != nil {
		return nil, err
	}
	if packing == "" {
		return f, nil
	}
	in := bufio.NewReaderSize(f, 1<<18)
	if packing != ".gz" {
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, errors.Join(&FormatError{path, 0, reasonOf(err)}, f.Close())
		}
		return &unzstd{z, f}, nil
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, errors.Join(&FormatError{path, 0, whyNoGzip(err)}, f.Close())
	}
	return unzipped{z, f}, nil
}

// unzipped closes the file under the decompressor.
type unzipped struct {
	io.Reader
	io.Closer
}

// unzstd closes both.
type unzstd struct {
	*zstd.Decoder
	file io.Closer
}

func (u *unzstd) Close() error {
	u.Decoder.Close()
	return u.file.Close()
}

// readFault names a file that cannot be read on from an offset.
func readFault(path string, offset int64, err error) error {
	var disk *fs.PathError
	if errors.As(err, &disk) {
		return err
	}
	return &FormatError{path, offset, reasonOf(err)}
}
