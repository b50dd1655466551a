// Package memfd creates anonymous memory that processes of a host share by descriptor. The memory
// is freed with the last process, even after a crash. Only Linux supports it: see Supported.
package memfd

import (
	"errors"
)

// ErrUnsupported is the error of all functions on other systems.
var ErrUnsupported = errors.New("processes share memory on Linux only")
