// Package pathname opens what users name. A name may be that of a named pipe, which
// open(2) waits for, of a device that never ends, or of a folder: what is not the
// regular file that is wanted is refused at once, by its name and kind.
package pathname

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ErrNotRegular is the error of a name that is there, but not of a regular file. It
// comes in a *fs.PathError, as those of the operating system do.
var ErrNotRegular = errors.New("not a regular file")

// kindError says what is there instead.
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

// Check is the error that Open would give for what is there instead of a regular file,
// without opening it, and otherwise what os.Stat says.
func Check(path string) (fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: kindError{info.Mode()}}
	}
	return info, err
}

// Open opens a regular file for reading. It waits for nothing: anything else is an
// error that is ErrNotRegular. The kind is that of what was opened, so that no
// other file can take its place in between.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // without effect on a regular file
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

// Read is the content of a regular file of at most so many bytes; of a larger one it
// reads nothing.
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
	content := make([]byte, 0, info.Size()+1) // room to see the end
	for {
		n, err := f.Read(content[len(content):cap(content)])
		content = content[:len(content)+n]
		switch {
		case int64(len(content)) > most: // it grows
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

// Write opens a file for writing, and makes it where there is none. Pipes and devices
// are opened, too, but a pipe that nobody reads is an error and not waited for. flags
// are more of os.OpenFile's.
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
