package wal

import (
	"errors"
	"os"
	"syscall"
)

type file interface {
	WriteAt(b []byte, off int64) (int, error)
	Sync() error // syncs data and length
	Truncate(size int64) error
	Close() error
}

type osFile struct{ *os.File }

func (f osFile) Sync() error { return datasync(f.File) }

func createFile(path string) (file, error) { return open(path, os.O_CREATE|os.O_EXCL) }

func open(path string, flags int) (file, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|flags, 0o666)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// isCrowded reports whether the process or the host has too many open files.
func isCrowded(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// isFull reports whether a disk, quota or file size limit is exhausted.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
