package nn

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/hugepage"
)

// aligned returns n zeros whose first lies at a multiple of 64 bytes; many of
// them lie in large pages.
func aligned(n int) []float32 { return hugepage.Floats(n) }

// isAligned reports whether x lies like what aligned returns.
func isAligned(x []float32) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(x)))%(4*lineValues) == 0
}
