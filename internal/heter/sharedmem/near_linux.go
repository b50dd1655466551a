package sharedmem

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapped maps memory, without allocating it.
func mapped(fd, n int, write bool) ([]byte, error) {
	prot := unix.PROT_READ
	if write {
		prot |= unix.PROT_WRITE
	}
	b, err := unix.Mmap(fd, 0, n, prot, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes of shared memory: %w (is there a limit, ulimit -v?)", n, err)
	}
	_ = unix.Madvise(b, unix.MADV_DONTDUMP) // excludes it from core dumps, if supported
	return b, nil
}

func unmap(b []byte) {
	if b != nil {
		_ = unix.Munmap(b) // fails only if b is no mapping
	}
}

// setAside allocates memory for a range of a file.
func setAside(fd int, from, n int64) error {
	for {
		if err := unix.Fallocate(fd, 0, from, n); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// populate maps the pages of b: an access without memory would end the process.
func populate(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	before := int(uintptr(unsafe.Pointer(&b[0])) % uintptr(os.Getpagesize()))
	if before != 0 {
		return fmt.Errorf("a slot begins %d bytes behind a page's begin", before)
	}
	for {
		switch err := unix.Madvise(b, unix.MADV_POPULATE_READ); {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EINVAL): // Linux before 5.14
			return nil
		default:
			return err
		}
	}
}
