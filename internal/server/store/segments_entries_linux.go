//go:build linux && !race

package store

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapEntries returns nil if the system has no more memory or mappings.
func mapEntries(n int) ([]uint64, []byte) {
	m, err := unix.Mmap(-1, 0, 8*n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(m))), n), m
}

func freeEntries(mapped []byte) {
	if mapped != nil {
		_ = unix.Munmap(mapped) // fails only for invalid ranges
	}
}
