//go:build !linux

package memfd

import "net"

// Supported says whether processes can share memory on this system at all.
const Supported = false

// Fixed and ReadOnly are seals, of which there are none.
const (
	Fixed    = 0
	ReadOnly = 0
)

// Create returns ErrUnsupported, as all others do.
func Create(string, int64) (int, error) { return -1, ErrUnsupported }

// Seal is not there.
func Seal(int, int) error { return ErrUnsupported }

// Check is not there.
func Check(int, int64, int) error { return ErrUnsupported }

// Close is not there.
func Close(int) {}

// Send is not there.
func Send(*net.UnixConn, []byte, int) error { return ErrUnsupported }

// Take is not there.
func Take(*net.UnixConn, []byte) (int, int, error) { return 0, -1, ErrUnsupported }
