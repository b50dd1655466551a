//go:build !linux

package clicks

import "os"

// readAhead does nothing on this system.
func readAhead(*os.File, int64, int64) {}
