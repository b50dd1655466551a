//go:build !linux

package memfd

import "net"

// Supported reports whether this system supports shared memory.
const Supported = false

// Fixed and ReadOnly are seals, unsupported here.
const (
	Fixed    = 0
	ReadOnly = 0
)

// Create returns ErrUnsupported, as do all other functions.
func Create(string, int64) (int, error) { return -1, ErrUnsupported }

// Seal is unsupported.
func Seal(int, int) error { return ErrUnsupported }

// Check is unsupported.
func Check(int, int64, int) error { return ErrUnsupported }

// Close is unsupported.
func Close(int) {}

// Send is unsupported.
func Send(*net.UnixConn, []byte, int) error { return ErrUnsupported }

// Take is unsupported.
func Take(*net.UnixConn, []byte) (int, int, error) { return 0, -1, ErrUnsupported }
