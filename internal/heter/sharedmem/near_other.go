//go:build !linux

package sharedmem

import "github.com/ringo-ml/ringo/internal/memfd"

func mapped(int, int, bool) ([]byte, error) { return nil, memfd.ErrUnsupported }
func unmap([]byte)                          {}
func setAside(int, int64, int64) error      { return memfd.ErrUnsupported }
func populate([]byte) error                 { return memfd.ErrUnsupported }
