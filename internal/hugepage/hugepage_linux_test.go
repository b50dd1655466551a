package hugepage

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// twice maps memory in two places.
func twice(t *testing.T, bytes int) (one, other []float32) {
	t.Helper()
	if bytes == 0 {
		return nil, nil
	}
	fd, err := unix.MemfdCreate("hugepage", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(bytes)); err != nil {
		t.Fatal(err)
	}
	var maps [2][]float32
	for i := range maps {
		p, err := unix.Mmap(fd, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(p) })
		maps[i] = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(p))), bytes/4)
	}
	return maps[0], maps[1]
}
