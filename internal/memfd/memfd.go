// Package memfd makes memory without a name in any file system, which processes of one host share by its descriptor. It goes with the last
// process that has it, however that ends. Linux alone has it: see Supported.
package memfd

import (
	"errors"
)

// ErrUnsupported is what all functions say where there is no such memory.
var ErrUnsupported = errors.New("processes share memory on Linux only")
