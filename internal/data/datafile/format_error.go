// Package datafile opens the files of data sets: plain and compressed text, and archives. It holds
// their errors, the count of skipped samples, and the names of the settings in these errors.
package datafile

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/klauspost/compress/zstd"
)

// FormatError is an error in the content of a data file. Offset is the byte of the error, after
// decompression.
type FormatError struct {
	File    string
	Offset  int64
	Problem string
}

// Error returns file, byte offset and problem.
func (e *FormatError) Error() string {
	return fmt.Sprintf("%s: byte %d: %s", e.File, e.Offset, e.Problem)
}

// Errorf returns a FormatError of a file at a byte.
func Errorf(file string, offset int64, format string, args ...any) *FormatError {
	return &FormatError{file, offset, fmt.Sprintf(format, args...)}
}

// Limits of a header's numbers, checked before memory is allocated.
const (
	// MaxExpansion is the highest ratio of deflate: a match of 258 bytes in 2 bits.
	MaxExpansion = 1032
	// MaxElements is larger than any set that fits in memory.
	MaxElements = 1<<31 - 1
)

// ReasonOf describes a decompressor's error.
func ReasonOf(err error) string {
	switch {
	case errors.Is(err, gzip.ErrChecksum):
		return "the gzip checksum does not match: the file is damaged"
	case errors.Is(err, gzip.ErrHeader):
		return "no gzip header here"
	case errors.Is(err, zstd.ErrCRCMismatch):
		return "the zstd checksum does not match: the file is damaged"
	case errors.Is(err, zstd.ErrMagicMismatch):
		return "no zstd frame here"
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return "this zstd file wants more than 128 MiB to be unpacked: pack it with --long=27 or less"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "truncated: the file ends too early"
	}
	return err.Error()
}

// WhyNoGzip describes the error of a file that does not begin as gzip.
func WhyNoGzip(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "truncated, or not a gzip file: it ends within its first 10 bytes"
	}
	return "not a gzip file: " + ReasonOf(err)
}

// ReadFault adds the file and the offset to a read error, except to an error of the disk.
func ReadFault(path string, offset int64, err error) error {
	var disk *fs.PathError
	if errors.As(err, &disk) {
		return err
	}
	return Errorf(path, offset, "%s", ReasonOf(err))
}
