// Package pathname opens files named by users. A name may be that of a named pipe, where open(2)
// blocks, of an endless device, or of a folder: other files than the required regular file are
// rejected immediately, with name and kind.
package pathname

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ErrNotRegular is the error of a name that is not a regular file, in a *fs.PathError, as errors of
// the operating system.
var ErrNotRegular = errors.New("not a regular file")

// kindError names the kind of an irregular file.
type kindError struct{ mode fs.FileMode }

func (e kindError) Is(target error) bool { return target == ErrNotRegular }

func (e kindError) Error() string {
	switch {
	case e.mode.IsDir():
		return "it is a folder, want a regular file"
	case e.mode&fs.ModeNamedPipe != 0:
		return "it is a pipe, want a regular file: write what it gives to a file first"
	case e.mode&fs.ModeSocket != 0:
		return "it is a socket, want a regular file"
	case e.mode&fs.ModeDevice != 0:
		return "it is a device, want a regular file"
	}
	return "it is no regular file"
}

// Check returns the error of Open for an irregular file, without opening it, otherwise the result
// of os.Stat.
func Check(path string) (fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: kindError{info.Mode()}}
	}
	return info, err
}

// Open opens a regular file for reading, without blocking. Other files are an error that is
// ErrNotRegular. The check uses the opened file, so that no other file can take its place.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // no effect on a regular file
	if err != nil {
		if errors.Is(err, syscall.ENXIO) { // a socket, which cannot be opened
			if _, kind := Check(path); kind != nil {
				return nil, kind
			}
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: kindError{info.Mode()}}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Read returns the content of a regular file of at most most bytes, and an error for a larger one.
func Read(path string, most int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	tooLarge := func(size int64) error {
		return &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%d bytes or more, want %d at most", size, most)}
	}
	if info.Size() > most {
		return nil, tooLarge(info.Size())
	}
	content := make([]byte, 0, info.Size()+1) // space to detect the end
	for {
		n, err := f.Read(content[len(content):cap(content)])
		content = content[:len(content)+n]
		switch {
		case int64(len(content)) > most: // the file grows
			return nil, tooLarge(int64(len(content)))
		case err == io.EOF:
			return content, nil
		case err != nil:
			return nil, err
		case len(content) == cap(content):
			content = append(content, 0)[:len(content)]
		}
	}
}

// Write opens a file for writing, created if missing. Pipes and devices are allowed, but a pipe
// without a reader is an error, not a wait. flags are further flags of os.OpenFile.
func Write(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|os.O_WRONLY|os.O_CREATE|syscall.O_NONBLOCK, 0o666)
	if !errors.Is(err, syscall.ENXIO) {
		return f, err
	}
	info, statErr := os.Stat(path)
	switch {
	case statErr != nil:
	case info.Mode()&fs.ModeNamedPipe != 0:
		err = &fs.PathError{Op: "open", Path: path, Err: errNoReader}
	case info.Mode()&fs.ModeSocket != 0:
		err = &fs.PathError{Op: "open", Path: path, Err: kindError{info.Mode()}}
	}
	return nil, err
}

var errNoReader = errors.New("it is a pipe that nobody reads: start its reader first")
