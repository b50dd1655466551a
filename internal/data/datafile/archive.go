package datafile

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"strings"

	"github.com/ringo-ml/ringo/internal/pathname"
)

// IsArchive reports whether a name is that of a readable archive: .tar, .tar.gz or .tgz.
func IsArchive(name string) bool {
	name = strings.ToLower(name)
	return strings.HasSuffix(name, ".tar.gz") || strings.HasSuffix(name, ".tgz") || strings.HasSuffix(name, ".tar")
}

// WalkArchive calls visit with each regular file of an archive, in the archive's order, and special
// with each entry of another type. An error of the archive is a *FormatError with the byte offset
// in the decompressed archive.
func WalkArchive(path string, visit func(name string, size int64, r io.Reader) error, special func(h *tar.Header)) error {
	f, err := pathname.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var r io.Reader = bufio.NewReaderSize(f, 1<<18)
	if !strings.HasSuffix(strings.ToLower(path), ".tar") {
		unpacked, err := gzip.NewReader(r)
		if err != nil {
			return Errorf(path, 0, "%s", WhyNoGzip(err))
		}
		r = unpacked
	}
	return WalkTar(path, r, visit, special)
}

// WalkTar is WalkArchive on a stream. Path is used in errors only.
func WalkTar(path string, r io.Reader, visit func(name string, size int64, r io.Reader) error, special func(h *tar.Header)) error {
	in := &counter{r: r}
	archive := tar.NewReader(in)
	after := "the beginning"
	for {
		h, err := archive.Next()
		if err == io.EOF {
			// The bytes after the archive's end must decompress; otherwise the file was cut or
			// damaged there.
			if _, err := io.Copy(io.Discard, in); err != nil {
				return ArchiveFault(path, in.n, after, err)
			}
			return nil
		}
		if err != nil {
			return ArchiveFault(path, in.n, after, err)
		}
		after = h.Name
		if h.Typeflag != tar.TypeReg {
			special(h)
			continue
		}
		content := &entry{r: archive}
		if err := visit(h.Name, h.Size, content); err != nil {
			if content.err != nil { // an error of the archive, not of visit
				return ArchiveFault(path, in.n, after, content.err)
			}
			return err
		}
	}
}

// ArchiveFault adds the archive's path and the position of an error.
func ArchiveFault(path string, offset int64, after string, err error) error {
	problem := err.Error()
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		problem = "truncated: the archive ends here"
	case errors.Is(err, tar.ErrHeader):
		problem = "no tar header here"
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader):
		problem = ReasonOf(err)
	}
	return Errorf(path, offset, "%s (of the unpacked archive, after %s); fetch or pack it again", problem, after)
}

// counter counts the bytes that were read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// entry stores the read error of a file in the archive.
type entry struct {
	r   io.Reader
	err error
}

func (e *entry) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if err != nil && err != io.EOF {
		e.err = err
	}
	return n, err
}
