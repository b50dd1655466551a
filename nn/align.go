package nn

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/hugepage"
)

// aligned returns n zeros at a multiple of 64 bytes; many values are in large pages.
func aligned(n int) []float32 { return hugepage.Floats(n) }

func isAligned(x []float32) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(x)))%(4*lineValues) == 0
}
