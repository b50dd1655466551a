package nn

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/hugepage"
)

// aligned returns n zeros whose first lies at a multiple of 64 bytes, a cache
// line and the widest vector; many of them lie in large pages. Go's garbage
// collector does not move memory.
func aligned(n int) []float32 {
	const line = 4 * lineValues
	buf := make([]float32, n+lineValues)
	hugepage.Advise(buf)
	past := uintptr(unsafe.Pointer(unsafe.SliceData(buf))) % line
	skip := int((line - past) % line / 4)
	return buf[skip : skip+n : skip+n]
}
