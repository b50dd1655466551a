//go:build !linux

package hugepage

import "testing"

// twice stands for memory mapped in two places.
func twice(_ *testing.T, bytes int) (one, other []float32) {
	x := make([]float32, bytes/4)
	return x, x
}
