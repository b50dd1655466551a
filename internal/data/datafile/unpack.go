package datafile

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/ringo-ml/ringo/internal/pathname"
)

// packings are the file endings of compressed files.
var packings = []string{".gz", ".zst", ".zstd"} // never written

// UnpackedName splits a file name into the name without its compression ending, and that ending, ""
// for a plain file.
func UnpackedName(name string) (plain, packing string) {
	for _, p := range packings {
		if n := len(name) - len(p); n > 0 && strings.EqualFold(name[n:], p) {
			return name[:n], p
		}
	}
	return name, ""
}

// Packed reports whether OpenText decompresses a file, by its name.
func Packed(path string) bool {
	_, packing := UnpackedName(path)
	return packing != ""
}

// zstdWindow is the memory limit of a zstd file, the window of `zstd --long=27`.
const zstdWindow = 1 << 27

// OpenText opens a file for reading. It decompresses names that end in .gz, .zst or .zstd, on the
// reading goroutine. An error in the content is a *FormatError.
func OpenText(path string) (io.ReadCloser, error) {
	_, packing := UnpackedName(path)
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
			return nil, errors.Join(Errorf(path, 0, "%s", ReasonOf(err)), f.Close())
		}
		return &unzstd{z, f}, nil
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, errors.Join(Errorf(path, 0, "%s", WhyNoGzip(err)), f.Close())
	}
	return unzipped{z, f}, nil
}

// unzipped closes the file under the decompressor.
type unzipped struct {
	io.Reader
	io.Closer
}

// unzstd closes the decompressor and its file.
type unzstd struct {
	*zstd.Decoder
	file io.Closer
}

func (u *unzstd) Close() error {
	u.Decoder.Close()
	return u.file.Close()
}

// IsFile reports whether a path names a regular file.
func IsFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// IsFolder reports whether a path names a folder.
func IsFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// WriteWhole writes a file that has its name only when it is complete.
func WriteWhole(path string, content []byte) error {
	if err := os.WriteFile(path+".part", content, 0o666); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}
