//go:build !linux

package doctor

import "errors"

// sharing fails: ranks share memory only on Linux.
func sharing() error { return errors.New("ranks share memory on Linux alone") }

// openFiles returns 0 for unknown.
func openFiles() uint64 { return 0 }
