package wal

import (
	"errors"
	"os"
	"syscall"
)

// file is a segment being written.
type file interface {
	WriteAt(b []byte, off int64) (int, error)
	Sync() error // of what has been written, and of the length
	Truncate(size int64) error
	Close() error
}

// osFile is a file of the operating system.
type osFile struct{ *os.File }

func (f osFile) Sync() error { return datasync(f.File) }

// createFile makes a file that must not exist.
func createFile(path string) (file, error) { return open(path, os.O_CREATE|os.O_EXCL) }

func open(path string, flags int) (file, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|flags, 0o666)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// isCrowded tells whether an error is that the process, or the host, has all the files open that it may.
func isCrowded(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// isFull tells whether an error is that of a disk, quota or file size that is
// used up, which making room can mend.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
