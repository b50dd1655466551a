//go:build !linux

package doctor

import "errors"

// sharing says that ranks share memory on Linux alone.
func sharing() error { return errors.New("ranks share memory on Linux alone") }

// openFiles is unknown.
func openFiles() uint64 { return 0 }
