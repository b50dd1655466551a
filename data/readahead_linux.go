package data

import (
	"os"

	"golang.org/x/sys/unix"
)

// readAhead asks the system to bring a part of a file into memory meanwhile. It
// is a hint: what goes wrong with it shows when the part is read.
func readAhead(f *os.File, at, n int64) {
	_ = unix.Fadvise(int(f.Fd()), at, n, unix.FADV_WILLNEED)
}
