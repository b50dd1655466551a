package data

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ringo-ml/ringo/internal/pathname"
)

// isArchive says whether a name is that of an archive we read.
func isArchive(name string) bool {
	name = strings.ToLower(name)
	return strings.HasSuffix(name, ".tar.gz") || strings.HasSuffix(name, ".tgz") || strings.HasSuffix(name, ".tar")
}

// walkArchive calls visit with every regular file of a .tar, .tar.gz or .tgz, in the archive's
// order, and other with every other entry. A fault of the archive is a *FormatError with the byte
// offset in the unpacked archive.
func walkArchive(path string, visit func(name string, size int64, r io.Reader) error, other func(h *tar.Header)) error {
	f, err := pathname.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var r io.Reader = bufio.NewReaderSize(f, 1<<18)
	if !strings.HasSuffix(strings.ToLower(path), ".tar") {
		unpacked, err := gzip.NewReader(r)
		if err != nil {
			return &FormatError{path, 0, whyNoGzip(err)}
		}
		r = unpacked
	}
	return walkTar(path, r, visit, other)
}

// walkTar is walkArchive of a stream; path is for its errors.
func walkTar(path string, r io.Reader, visit func(name string, size int64, r io.Reader) error, other func(h *tar.Header)) error {
	in := &counter{r: r}
	archive := tar.NewReader(in)
	after := "the beginning"
	for {
		h, err := archive.Next()
		if err == io.EOF {
			// The archive's end; what follows must still unpack, or the file was
			// cut or damaged behind it.
			if _, err := io.Copy(io.Discard, in); err != nil {
				return archiveFault(path, in.n, after, err)
			}
			return nil
		}
		if err != nil {
			return archiveFault(path, in.n, after, err)
		}
		after = h.Name
		if h.Typeflag != tar.TypeReg {
			other(h)
			continue
		}
		content := &entry{r: archive}
		if err := visit(h.Name, h.Size, content); err != nil {
			if content.err != nil { // the archive's fault, not the content's
				return archiveFault(path, in.n, after, content.err)
			}
			return err
		}
	}
}

// archiveFault names the archive's error and where in it that is.
func archiveFault(path string, offset int64, after string, err error) error {
	problem := err.Error()
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		problem = "truncated: the archive ends here"
	case errors.Is(err, tar.ErrHeader):
		problem = "no tar header here"
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader):
		problem = reasonOf(err)
	}
	return &FormatError{path, offset, fmt.Sprintf("%s (of the unpacked archive, after %s); fetch or pack it again", problem, after)}
}

// counter counts what was read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// entry remembers how reading a file of the archive failed.
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
