//go:build !amd64

package simd

func hostLevels() []*Kernels { return nil }
